# Installs the build, moves the tree, and builds tests/plugins against it (a ctest fixture; see cmake/Tests.cmake).
#
#   cmake -DBUILD=<trainrun's build> -DFOLDER=<where> -DCOMPILER=<c++> [-DLAUNCHER=<ccache ...>] -P build.cmake

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${FOLDER}/first_place" "${FOLDER}/installed")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${FOLDER}/first_place" OUTPUT_QUIET)
file(RENAME "${FOLDER}/first_place" "${FOLDER}/installed")

run("${FOLDER}/installed/bin/trainrun" --version)

set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")  # a list, which an argument would lose but for its first word
run("${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}" -B "${FOLDER}/build" -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_PREFIX_PATH=${FOLDER}/installed" "-DCMAKE_CXX_COMPILER=${COMPILER}")
run("${CMAKE_COMMAND}" --build "${FOLDER}/build")
