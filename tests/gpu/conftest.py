import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "parity"))  # reference.py: the same jobs in plain PyTorch
