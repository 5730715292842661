"""Lets PyPI's CUDA-linked torchvision import beside a CPU build of torch.

Its import registers fake kernels for two operators whose schemas only its CUDA library declares;
declaring the schemas first is enough. Only processes whose PYTHONPATH names this folder run it, and
torch is imported only when somebody asks for torchvision.
"""

import sys
from importlib.abc import MetaPathFinder

_OPERATORS = ("nms", "qnms")


class _DeclareOperators(MetaPathFinder):
    """Declares the operators just before torchvision is looked up, then steps aside."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch  # noqa: PLC0415

            # Both a PYTHONPATH and an import of this module may have brought a finder here.
            if torch.version.cuda is None and not hasattr(torch.library, "_reelabel_torchvision"):
                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for name in _OPERATORS:
                    self.library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                # The schemas live as long as the library object does.
                torch.library._reelabel_torchvision = self.library  # noqa: SLF001


sys.meta_path.insert(0, _DeclareOperators())
