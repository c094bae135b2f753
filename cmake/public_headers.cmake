# cmake -DROOT=<checkout> -DOUT=<file> -P public_headers.cmake: writes a header that says what the public ones are, by a
# digest of their names and contents. What plugins are compiled against is theirs to match (registry/plugin.h).
file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/registry/*.h")
list(FILTER headers EXCLUDE REGEX "^registry/datasets/arrow/")  # of a library that plugins do not link
list(SORT headers)
set(content "")
foreach(header IN LISTS headers)
  file(SHA256 "${ROOT}/${header}" digest)
  string(APPEND content "${header} ${digest}\n")
endforeach()
string(SHA256 digest "${content}")
string(SUBSTRING "${digest}" 0 12 digest)
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#pragma once\n\n#define TRAINRUN_PUBLIC_HEADERS \"${digest}\"\n")
