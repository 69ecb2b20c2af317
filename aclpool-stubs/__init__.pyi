from acl import *
from acl import __all__ as __all__
from acl import __version__ as __version__
from acl import mindspore as mindspore
from acl import torch as torch
