"""Which data a recipe reads from the folder that TRAINRUN_DATA names: nothing is fetched in a test."""

import os
import pathlib
import re

import pytest


def folders_of(path):
    """The folders of TRAINRUN_DATA in which a recipe, or a recipe that it is based on, has its data."""
    text = pathlib.Path(path).read_text()
    folders = set(re.findall(r"TRAINRUN_DATA:-data}/([\w-]+)", text))
    for bases in re.findall(r"^base:(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL):
        for base in re.findall(r"[\w./-]+\.ya?ml", bases):
            folders |= folders_of(pathlib.Path(path).parent / base)
    return folders


def is_fetched(path):
    """Whether a recipe's data come along or are fetched; not where one must put them there oneself."""
    return not folders_of(path) or "download: true" in pathlib.Path(path).read_text() or any(
        is_fetched(pathlib.Path(path).parent / base) for base in re.findall(r"^base: *([\w./-]+\.ya?ml)", pathlib.Path(path).read_text(), re.MULTILINE))


def skip_without_data(path):
    """Skips the running test where a folder with the recipe's data is missing."""
    data = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data"))
    for folder in sorted(folders_of(path)):
        if not (data / folder).is_dir():
            pytest.skip(f"no data: there is no {folder} in TRAINRUN_DATA")
