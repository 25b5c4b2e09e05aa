"""The shared library with the engine and the plugin."""

import os
import pathlib

LIBRARY = "libremat_pjrt.so"

# The variable that names another library than the one of this package.
VARIABLE = "REMAT_PJRT_LIBRARY"


def library_path():
    """The path of the library.

    Raises FileNotFoundError if there is none.
    """
    given = os.environ.get(VARIABLE)
    path = pathlib.Path(given) if given else pathlib.Path(__file__).with_name(LIBRARY)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: build it by `cargo build --release -p remat-pjrt`, and name it in {VARIABLE}")
    return str(path)
