# `cmake --install build/release --prefix DIR`: a tree that runs wherever it is moved, LibTorch included.
#
#   bin/trainrun
#   lib/libtrainrun_registry.so     what plugins link against
#   lib/libtrainrun_cuda.so         what is opened where there is a GPU; where it was built
#   lib/libtrainrun_arrow.so        what is opened for Parquet files; where it was built
#   lib/trainrun-starter            what the files of `trainrun bundle` begin with
#   lib/cmake/trainrun              find_package(trainrun)
#   lib/trainrun/{torch,nvidia}     LibTorch, laid as in its wheel: its libraries find each other by that
#   lib/trainrun/pyarrow            Arrow's two libraries, where the former is
#   include/trainrun                the public headers, #include <registry/plugin.h>, and the JSON library that they speak of
#   share/trainrun                  recipes, their embedded data, schemas
#
# The component `trainrun` is all of it but LibTorch and Arrow, which are `libtorch`, and LibTorch's headers, `libtorch_headers`. A wheel (tools/wheel) is that component as
# site-packages/trainrun, beside site-packages/torch and perhaps pyarrow, so both are looked for there, too.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME trainrun)

set(libtorch_of_library "$ORIGIN/trainrun/torch/lib:$ORIGIN/../../torch/lib")
set_target_properties(trainrun_registry PROPERTIES INSTALL_RPATH "$ORIGIN:${libtorch_of_library}")
install(TARGETS trainrun_registry LIBRARY DESTINATION lib)
if(TARGET trainrun)
  set_target_properties(trainrun PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN/../lib/trainrun/torch/lib:$ORIGIN/../../torch/lib")
  install(TARGETS trainrun RUNTIME DESTINATION bin)
endif()

install(TARGETS trainrun-starter RUNTIME DESTINATION lib)

if(TARGET trainrun_cuda)
  set_target_properties(trainrun_cuda PROPERTIES INSTALL_RPATH "$ORIGIN:${libtorch_of_library}")
  install(TARGETS trainrun_cuda LIBRARY DESTINATION lib)
endif()

if(TARGET trainrun_arrow)
  set_target_properties(trainrun_arrow PROPERTIES
    INSTALL_RPATH "$ORIGIN:$ORIGIN/trainrun/pyarrow:$ORIGIN/../../pyarrow:${libtorch_of_library}")
  install(TARGETS trainrun_arrow LIBRARY DESTINATION lib)
  install(PROGRAMS ${arrow_libraries} DESTINATION lib/trainrun/pyarrow COMPONENT libtorch)
endif()

# Those that plugin.h reaches, and no others: what a plugin may include is what its ABI tag is made of.
install(CODE "
  file(STRINGS \"${public_headers_list}\" headers)
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH folder)
    file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/include/trainrun/\${folder}\" TYPE FILE FILES \"${PROJECT_SOURCE_DIR}/\${header}\")
  endforeach()")
find_path(TRAINRUN_NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
install(DIRECTORY "${TRAINRUN_NLOHMANN_INCLUDE}/nlohmann" DESTINATION include/trainrun)
install(FILES "${public_headers_header}" DESTINATION include/trainrun/registry)
install(DIRECTORY recipes schemas DESTINATION share/trainrun OPTIONAL)

file(GLOB libtorch_files
  "${TRAINRUN_LIBTORCH}/lib/libtorch_cpu.so" "${TRAINRUN_LIBTORCH}/lib/libc10.so" "${TRAINRUN_LIBTORCH}/lib/libgomp*.so*")
file(GLOB nvidia_files
  "${TRAINRUN_LIBTORCH}/../nvidia/cu13/lib/libcudart.so.*" "${TRAINRUN_LIBTORCH}/../nvidia/cu13/lib/libcupti.so.*")
file(GLOB licence_folders "${TRAINRUN_LIBTORCH}/../torch-*.dist-info/licenses"
  "${TRAINRUN_LIBTORCH}/../nvidia_cuda_runtime-*.dist-info/licenses" "${TRAINRUN_LIBTORCH}/../nvidia_cuda_cupti-*.dist-info/licenses")

# LibTorch's CUDA side and what it needs, 3.2 GB, go along from a set-up that has all of it: one with a GPU.
file(GLOB cudnn "${TRAINRUN_LIBTORCH}/../nvidia/cudnn/lib/libcudnn.so.*")
if(TARGET trainrun_cuda AND cudnn)
  file(GLOB of_cuda "${TRAINRUN_LIBTORCH}/lib/libtorch_cuda*.so" "${TRAINRUN_LIBTORCH}/lib/libc10_cuda.so"
    "${TRAINRUN_LIBTORCH}/lib/libtorch_nvshmem.so" "${TRAINRUN_LIBTORCH}/lib/libcaffe2_nvrtc.so")
  list(APPEND libtorch_files ${of_cuda})
  install(DIRECTORY "${TRAINRUN_LIBTORCH}/../nvidia" DESTINATION lib/trainrun COMPONENT libtorch USE_SOURCE_PERMISSIONS
    FILES_MATCHING PATTERN "*.so*" PATTERN "*icense*")
  file(GLOB more_licences "${TRAINRUN_LIBTORCH}/../nvidia_*.dist-info/licenses")
  list(APPEND licence_folders ${more_licences})
  list(REMOVE_DUPLICATES licence_folders)
endif()
install(PROGRAMS ${libtorch_files} DESTINATION lib/trainrun/torch/lib COMPONENT libtorch)
install(PROGRAMS ${nvidia_files} DESTINATION lib/trainrun/nvidia/cu13/lib COMPONENT libtorch)
install(DIRECTORY "${TRAINRUN_LIBTORCH}/include" DESTINATION lib/trainrun/torch COMPONENT libtorch_headers)  # for plugins
if(TARGET trainrun_arrow)
  file(GLOB arrow_licences "${arrow_folder}/../pyarrow-*.dist-info/licenses")
  list(APPEND licence_folders ${arrow_licences})
endif()
foreach(folder IN LISTS licence_folders)
  get_filename_component(package "${folder}" DIRECTORY)
  get_filename_component(package "${package}" NAME)
  install(DIRECTORY "${folder}" DESTINATION "lib/trainrun/${package}" COMPONENT libtorch)
endforeach()

configure_package_config_file(cmake/trainrunConfig.cmake.in trainrunConfig.cmake INSTALL_DESTINATION lib/cmake/trainrun)
write_basic_package_version_file(trainrunConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/trainrunConfig.cmake" "${PROJECT_BINARY_DIR}/trainrunConfigVersion.cmake" cmake/LibTorch.cmake
  DESTINATION lib/cmake/trainrun)
