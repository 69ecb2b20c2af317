#!/bin/bash
set -eu
. "$ASCEND_INSTALL_PATH/bin/setenv.bash"
cmake -S . -B "$BUILD" -DASCEND_CANN_PACKAGE_PATH="$ASCEND_INSTALL_PATH"
cmake --build "$BUILD"
"$BUILD/main"
