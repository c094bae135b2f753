# One doctest program for the C++ tests; a ctest entry for each of its source files and for each Python test.
#
# Every test runs in the checkout and finds the program by TRAINRUN_BINARY, the build folder by TRAINRUN_BUILD_DIR, the
# plugins that tests/plugins built by TRAINRUN_TEST_PLUGINS. Sources in tests/plugins, tests/gpu and tests/parity are
# built on their own.
find_package(doctest REQUIRED)
find_path(TRAINRUN_VALIJSON_INCLUDE valijson/validator.hpp REQUIRED)
set(TRAINRUN_PYTHON "${PROJECT_SOURCE_DIR}/.deps/python/bin/python" CACHE FILEPATH
  "the Python that has what tools/requirements/test.lock lists")

set(plugins_folder "${PROJECT_BINARY_DIR}/test_plugins")
set(test_environment
  "TRAINRUN_BINARY=${PROJECT_BINARY_DIR}/bin/trainrun"
  "TRAINRUN_BUILD_DIR=${PROJECT_BINARY_DIR}"
  "TRAINRUN_CALLED=${PROJECT_BINARY_DIR}/warm/trainrun"
  "OMP_WAIT_POLICY=passive"  # threads that spin while they wait hinder each other where tests share the cores
  "TRAINRUN_TEST_PLUGINS=${plugins_folder}/build")
if(TRAINRUN_SANITIZERS)
  # LibTorch itself is not instrumented: what it hands us in a std::vector would be taken for an overflow, and what it
  # keeps until exit for a leak. A request for more memory than there is fails, as it does elsewhere.
  set(asan_options detect_container_overflow=0:detect_leaks=0:allocator_may_return_null=1:malloc_context_size=2)
  list(APPEND test_environment "UBSAN_OPTIONS=print_stacktrace=1")
endif()

# trainrun_test(NAME LABEL COMMAND...): a ctest entry. One that has "plugin" in its name finds the test plugins built.
function(trainrun_test name label)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  if(name MATCHES "plugin")
    set(label plugin)
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED test_plugins)
  endif()
  set(environment ${test_environment})
  if(TRAINRUN_SANITIZERS AND name MATCHES "^faults/")  # they fork hundreds of times: what was freed is kept, and copied, for less long
    list(APPEND environment "ASAN_OPTIONS=${asan_options}:quarantine_size_mb=16")
  elseif(TRAINRUN_SANITIZERS)
    list(APPEND environment "ASAN_OPTIONS=${asan_options}")
  endif()
  if(name MATCHES "^(parity|gpu)/")
    list(APPEND environment "TRAINRUN_PLAIN_MKL=1")  # many of them compare with Python's PyTorch to the last bit
  endif()
  if(name MATCHES "^faults/")  # what befalls files is tried on a disk, where tools/test keeps others' in memory
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION "TMPDIR=unset:")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT 900 ENVIRONMENT "${environment}")
endfunction()

# Programs that are started once for many calls (tests/warm): trainrun_warm(NAME PROGRAM) builds what calls PROGRAM, or for
# "" the one that TRAINRUN_BINARY names, by the server at warm/NAME.socket.
set(warm_folder "${PROJECT_BINARY_DIR}/warm")
add_library(trainrun_warm MODULE tests/warm/server.cpp)
target_link_libraries(trainrun_warm PRIVATE ${CMAKE_DL_LIBS})
function(trainrun_warm name program)
  add_executable(${name}_called tests/warm/client.cpp)
  set_target_properties(${name}_called PROPERTIES OUTPUT_NAME ${name})
  target_compile_definitions(${name}_called PRIVATE "TRAINRUN_WARM_SOCKET_PATH=\"${warm_folder}/${name}.socket\""
    "TRAINRUN_WARM_PROGRAM_PATH=\"${program}\"")
  target_link_options(${name}_called PRIVATE -static)
  _trainrun_warm_target(${name}_called)
endfunction()
function(_trainrun_warm_target target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${warm_folder}" RUNTIME_OUTPUT_DIRECTORY "${warm_folder}")
endfunction()
_trainrun_warm_target(trainrun_warm)

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.cpp")
list(FILTER test_sources EXCLUDE REGEX "/tests/(plugins|gpu|parity|language)/")
if(test_sources)
  add_executable(trainrun_tests tests/main.cpp ${test_sources})
  trainrun_target(trainrun_tests)
  set_source_files_properties(tests/main.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # it implements doctest
  if(TRAINRUN_SANITIZERS)  # without optimization, its validator takes a quarter of all the sanitizers' time
    set_source_files_properties(tests/runner/schema_test.cpp PROPERTIES
      SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -O1)
  endif()
  trainrun_unity(trainrun_tests)
  trainrun_target_compiles_lightly(trainrun_tests)
  target_include_directories(trainrun_tests SYSTEM PRIVATE "${TRAINRUN_VALIJSON_INCLUDE}")
  target_link_libraries(trainrun_tests PRIVATE trainrun_runner trainrun_registry doctest::doctest ZLIB::ZLIB SQLite::SQLite3)
  # Starting it takes as long as most of its files' tests: they run in copies of one start (a ctest fixture).
  trainrun_warm(trainrun_tests "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/trainrun_tests")
  add_dependencies(trainrun_tests trainrun_tests_called trainrun_warm)
  set(serve "${PROJECT_SOURCE_DIR}/tests/warm/serve.sh")
  set(socket "${warm_folder}/trainrun_tests.socket")
  trainrun_test(unit_tests_begin fixture ${serve} begin $<TARGET_FILE:trainrun_warm> ${socket} $<TARGET_FILE:trainrun_tests>)
  set_tests_properties(unit_tests_begin PROPERTIES FIXTURES_SETUP unit_tests)
  trainrun_test(unit_tests_end fixture ${serve} end ${socket})
  set_tests_properties(unit_tests_end PROPERTIES FIXTURES_CLEANUP unit_tests)
  foreach(source IN LISTS test_sources)
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/tests" "${source}")
    string(REGEX REPLACE "_test\\.cpp$" "" name "${name}")
    if(TRAINRUN_SANITIZERS AND name STREQUAL "faults/signal_phases")
      continue()  # it drives the program, which the sanitizers' build leaves out
    endif()
    set(program "${warm_folder}/trainrun_tests")
    if(TRAINRUN_SANITIZERS AND name MATCHES "^faults/")
      set(program $<TARGET_FILE:trainrun_tests>)  # its options of AddressSanitizer are its own
    endif()
    trainrun_test(${name} unit ${program} "--source-file=*/tests/${name}_test.cpp" --no-version)
    set_property(TEST ${name} APPEND PROPERTY FIXTURES_REQUIRED unit_tests)
    if(name MATCHES "^(runner|faults)/")  # trainings of small nets: see pages_of_one_thread below
      set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "OMP_NUM_THREADS=1")
    endif()
  endforeach()
endif()

# registry/language, which neither sees nor is linked with LibTorch: a program of its own.
file(GLOB language_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/language/*_test.cpp")
add_executable(trainrun_language_tests tests/language/main.cpp ${language_tests} $<TARGET_OBJECTS:trainrun_language>)
target_link_libraries(trainrun_language_tests PRIVATE trainrun_plain_options doctest::doctest ${TRAINRUN_TEXT_LINK_LIBRARIES})
target_compile_definitions(trainrun_language_tests PRIVATE TRAINRUN_WITHOUT_LIBTORCH)
trainrun_test(language unit $<TARGET_FILE:trainrun_language_tests> --no-version)
if(TARGET trainrun_tests)  # who builds the one wants the other
  add_dependencies(trainrun_tests trainrun_language_tests)
endif()

# What tests/parity compares with Python PyTorch is built and run by this program.
add_executable(trainrun_probe tests/parity/probe.cpp tests/parity/layers_probe.cpp tests/parity/onnx_probe.cpp tests/parity/optimizers_probe.cpp
  tests/parity/data_probe.cpp tests/parity/training_probe.cpp tests/parity/imagined_gpu.cpp
  tests/parity/fuzz.cpp tests/parity/fuzz_changes.cpp tests/parity/fuzz_mends.cpp tests/parity/fuzz_readers.cpp
  tests/parity/batches_probe.cpp tests/parity/generation_probe.cpp
  tests/parity/tokenizer_probe.cpp tests/parity/chat_probe.cpp tests/parity/sweep_probe.cpp)
trainrun_target(trainrun_probe)
trainrun_unity(trainrun_probe)
trainrun_target_compiles_lightly(trainrun_probe)
target_link_libraries(trainrun_probe PRIVATE trainrun_runner ZLIB::ZLIB)
if(NOT TRAINRUN_SANITIZERS)
  trainrun_warm(trainrun "")
  trainrun_warm(trainrun_probe "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/trainrun_probe")
endif()

file(GLOB_RECURSE python_tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.py")
if(python_tests AND NOT EXISTS "${TRAINRUN_PYTHON}")
  message(STATUS "the Python tests are left out: no ${TRAINRUN_PYTHON}; tools/test sets it up")
  set(python_tests "")
elseif(python_tests)  # what the program computes is compared with the same torch
  execute_process(COMMAND "${TRAINRUN_PYTHON}" -c "import importlib.metadata as m; print(m.version('torch').split('+')[0])"
    OUTPUT_VARIABLE torch_of_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT torch_of_python STREQUAL TRAINRUN_LIBTORCH_VERSION)
    message(STATUS "the Python tests are left out: they compare with torch ${TRAINRUN_LIBTORCH_VERSION}, "
      "and ${TRAINRUN_PYTHON} has torch '${torch_of_python}'")
    set(python_tests "")
  endif()
endif()
# Pages of Python tests run in copies of a process that has imported torch already (a ctest fixture).
function(trainrun_page verb)
  set(flags -B)
  if(verb STREQUAL run)
    list(APPEND flags -S)  # starts in half the time
  endif()
  set(page_command "${TRAINRUN_PYTHON}" ${flags} "${PROJECT_SOURCE_DIR}/tests/page.py" ${verb} "${PROJECT_BINARY_DIR}/pages.sock" PARENT_SCOPE)
endfunction()
if(python_tests)
  trainrun_page(serve)
  trainrun_test(pages_begin fixture ${page_command})
  set_tests_properties(pages_begin PROPERTIES FIXTURES_SETUP pages)
  trainrun_page(stop)
  trainrun_test(pages_end fixture ${page_command})
  set_tests_properties(pages_end PROPERTIES FIXTURES_CLEANUP pages)
endif()
trainrun_page(run)
# Pages whose time is spent on waiting for limits; they run at the end, beside each other, the first as several parts: the limits
# that they set for processes to end are the program's own promise, so nothing else may load the machine.
set(waiting_pages faults/rank_faults launch/machines)
# Pages whose jobs are small: a second thread computes nothing sooner there, and where three pages share two cores the threads
# that wait for each other take several times the processor time of one. Threads are for the registry's unit tests, whose
# kernels divide their work, and for the other pages: they compare every layer and loss, and trainings of all kinds.
set(pages_of_one_thread
  faults/changed_run faults/distributed_faults faults/resume faults/signals gpu/imagined_gpu launch/agreement launch/own_launcher launch/torchrun
  parity/adapters_parity parity/added_tokens_parity parity/alignment_parity parity/callbacks_parity parity/chat_parity parity/chat_templates_parity
  parity/checkpoint_activations_parity parity/datasets_parity parity/distillation_parity parity/distributed_parity parity/freezing_parity
  parity/generate_chat_parity parity/generate_parity parity/gguf_parity parity/hub_dataset_parity parity/hub_files_parity parity/hub_parity
  parity/hub_prediction_parity parity/image_folder_parity parity/jobs_parity parity/language_model_parity parity/language_models_parity
  parity/layer_decay_parity parity/loss_cuts_parity parity/masked_lm_parity parity/monitor_parity parity/onnx_models_parity parity/onnx_parity
  parity/optimizers_parity parity/precision_parity parity/preference_parity parity/python_export parity/python_export_data parity/random_programs
  parity/scaling_parity parity/sentence_embeddings_parity parity/several_losses_parity parity/state_dict_parity parity/sweep_parity
  parity/table_prediction_parity parity/text_jobs_parity parity/text_prediction_parity parity/token_classification_parity parity/torchvision_parity
  parity/vision_export_parity plugins/plugin_faults plugins/plugins runner/language_recipes runner/mlflow runner/recipe_runs tools/advice tools/bisect
  tools/bundle tools/ctl tools/guide_models tools/image_trees tools/init tools/init_encodings tools/mistakes tools/newcomer tools/replay tools/report
  tools/sweep tools/tokenizer)
foreach(source IN LISTS python_tests)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/tests" "${source}")
  string(REGEX REPLACE "_test\\.py$" "" name "${name}")
  set(parts "")
  if(name STREQUAL "faults/rank_faults")
    set(parts 5)
  endif()
  trainrun_test(${name} python ${page_command} "${source}" ${parts})
  set_property(TEST ${name} APPEND PROPERTY FIXTURES_REQUIRED pages)
  if(name IN_LIST pages_of_one_thread)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "OMP_NUM_THREADS=1")
  endif()
  if(NOT parts)  # where there is no GPU, what needs one is listed as skipped, not as passed
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\n[0-9]+ skipped in ")
  endif()
endforeach()

get_property(others DIRECTORY PROPERTY TESTS)
list(REMOVE_ITEM others ${waiting_pages} pages_end unit_tests_end)
foreach(waiting IN LISTS waiting_pages)
  if(TEST ${waiting})
    set_tests_properties(${waiting} PROPERTIES DEPENDS "${others}")
  endif()
endforeach()

# A tree is installed and moved, and the plugins of tests/plugins are built against it, as their author would.
if(EXISTS "${PROJECT_SOURCE_DIR}/tests/plugins/CMakeLists.txt" AND NOT TRAINRUN_SANITIZERS)
  add_test(NAME plugins_build COMMAND "${CMAKE_COMMAND}"
    "-DBUILD=${PROJECT_BINARY_DIR}" "-DFOLDER=${plugins_folder}" "-DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P "${PROJECT_SOURCE_DIR}/tests/plugins/build.cmake")
  set_tests_properties(plugins_build PROPERTIES FIXTURES_SETUP test_plugins LABELS plugin TIMEOUT 900)
endif()

# What others wait for begins first, then what takes long, so that nothing is waited for at the end, alone.
foreach(first_one pages_begin unit_tests_begin plugins_build)
  if(TEST ${first_one})
    set_tests_properties(${first_one} PROPERTIES COST 1000)
  endif()
endforeach()
foreach(long_one plugins/plugins parity/tokenizers_parity parity/distributed_parity runner/sharded_memory faults/distributed_faults
    tools/wheel tools/bundle tools/deb launch/torchrun runner/recipe_runs gpu/imagined_gpu parity/training_parity parity/schedulers_parity faults/resume tools/guide_plugin
    faults/checkpoint_kill runner/schema runner/callbacks tools/sweep tools/micro_batch tools/demand tools/advice tools/cli tools/error_codes
    parity/onnx_parity parity/vision_export_parity runner/recipe_defaults tools/tokenizer)
  if(TEST ${long_one})
    set_tests_properties(${long_one} PROPERTIES COST 100)
  endif()
endforeach()
