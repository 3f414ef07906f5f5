"""The PyTorch front end: models in, graphs out, and the backend of ``torch.compile``."""
