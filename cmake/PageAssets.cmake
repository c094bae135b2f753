# Puts the files that HTML pages hold into the program: Chart.js (Debian's libjs-chart.js), and our own script and style.
# As a script (-P), writes the source that holds FILES under NAMES.
if(CMAKE_SCRIPT_MODE_FILE)
  set(source "#include \"runner/report/page/page_assets.h\"\n\nnamespace trainrun {\n")
  foreach(pair IN ITEMS "chart_library|${CHART}" "report_script|${SCRIPT}" "report_style|${STYLE}")
    string(REPLACE "|" ";" pair "${pair}")
    list(GET pair 0 name)
    list(GET pair 1 file)
    file(READ "${file}" content HEX)
    string(LENGTH "${content}" length)
    math(EXPR bytes "${length} / 2")
    string(REGEX MATCHALL "................................................................|..+" lines "${content}")
    set(text "")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" line "${line}")
      string(APPEND text "    \"${line}\"\n")
    endforeach()
    string(APPEND source "\nstd::string_view ${name}() {\n  static constexpr char kBytes[] =\n${text}    ;\n"
      "  return {kBytes, ${bytes}};\n}\n")
  endforeach()
  file(WRITE "${OUT}" "${source}\n}  // namespace trainrun\n")
  return()
endif()

find_file(TRAINRUN_CHART_JS NAMES chart.min.js Chart.min.js
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_DEFAULT_PATH)
if(NOT TRAINRUN_CHART_JS)
  message(FATAL_ERROR "Chart.js is missing, which trainrun report puts into its pages: install libjs-chart.js, or say where "
    "it is: -DTRAINRUN_CHART_JS=/path/to/chart.min.js (version 3)")
endif()
file(READ "${TRAINRUN_CHART_JS}" chart_begin LIMIT 400)
if(NOT chart_begin MATCHES "Chart\\.js v3\\.")
  message(FATAL_ERROR "${TRAINRUN_CHART_JS} is not version 3 of Chart.js, for which runner/report/page/report.js is written")
endif()
set(page_folder "${PROJECT_SOURCE_DIR}/runner/report/page")
set(page_assets "${PROJECT_BINARY_DIR}/generated/runner/page_assets.cpp")
add_custom_command(OUTPUT "${page_assets}"
  COMMAND "${CMAKE_COMMAND}" "-DCHART=${TRAINRUN_CHART_JS}" "-DSCRIPT=${page_folder}/report.js"
    "-DSTYLE=${page_folder}/report.css" "-DOUT=${page_assets}" -P "${CMAKE_CURRENT_LIST_FILE}"
  DEPENDS "${TRAINRUN_CHART_JS}" "${page_folder}/report.js" "${page_folder}/report.css" "${CMAKE_CURRENT_LIST_FILE}")
set_source_files_properties("${page_assets}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
target_sources(trainrun_runner PRIVATE "${page_assets}")
