#!/usr/bin/env python3
"""Unpacks what a C++ program needs of PyPI wheels: libraries, headers and licences.

Usage: unpack_wheels.py LOCK_FILE WHEEL_FOLDER DESTINATION

The wheels are those that the lock file names; in DESTINATION they lie as pip would lay them in site-packages, which is
where the RPATHs of LibTorch's libraries look for each other.
"""

import pathlib
import re
import sys
import zipfile

WANTED = re.compile(r"torch/(lib|include)/|nvidia/|pyarrow/(include/|lib(arrow|parquet)\.so)|[^/]+\.dist-info/")


def main(lock_file: str, wheel_folder: str, destination: str) -> None:
    requirements = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", pathlib.Path(lock_file).read_text(), re.MULTILINE)
    for name, version in requirements:
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        wheels = list(pathlib.Path(wheel_folder).glob(pattern))
        if len(wheels) != 1:
            sys.exit(f"expected one wheel {wheel_folder}/{pattern}, found {len(wheels)}")
        print(f"  {wheels[0].name}", file=sys.stderr)
        with zipfile.ZipFile(wheels[0]) as wheel:
            for member in filter(WANTED.match, wheel.namelist()):
                if member.endswith("/"):
                    continue
                pathlib.Path(destination, member).unlink(missing_ok=True)  # not written into: other clones may have links to it
                wheel.extract(member, destination)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
