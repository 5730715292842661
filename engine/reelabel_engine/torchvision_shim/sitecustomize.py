"""Make PyPI's CUDA-linked torchvision importable with a CPU build of torch.

Importing it registers fake kernels for two operators whose schemas only its CUDA library declares;
declaring the schemas first is enough. `make engine` copies this file into site-packages, where a `.pth` file
runs it whenever Python starts; elsewhere, only processes whose PYTHONPATH contains this folder run it. It therefore
imports nothing but what Python has already imported, and torch only when torchvision is imported.
"""

import sys

_OPERATORS = ("nms", "qnms")


class _DeclareOperators:
    """Declares the operators just before torchvision is looked up, then removes itself."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            import torch  # noqa: PLC0415

            # The `.pth` file, PYTHONPATH and an import of this module may each have installed a finder.
            if torch.version.cuda is None and not hasattr(torch.library, "_reelabel_torchvision"):
                self.library = torch.library.Library("torchvision", "FRAGMENT")
                for name in _OPERATORS:
                    self.library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
                # The schemas live as long as the library object.
                torch.library._reelabel_torchvision = self.library  # noqa: SLF001


sys.meta_path.insert(0, _DeclareOperators())
