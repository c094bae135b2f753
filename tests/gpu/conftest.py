import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))  # recipe_data.py
sys.path.insert(0, str(TESTS / "parity"))  # reference.py: the same jobs in plain PyTorch
