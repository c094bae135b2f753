#include "registry/formats/files/json_depth.h"

#include "registry/language/error.h"

namespace trainrun {

void check_json_size(std::string_view text, size_t most_values, const std::string& place) {
  size_t values = 1;
  for (size_t i = text.find_first_of("\"[{,"); i < text.size(); i = text.find_first_of("\"[{,", i + 1)) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (++values > most_values) {
      throw DataError(place + ": holds more than " + std::to_string(most_values) + " values");
    }
  }
}

void check_json_depth(std::string_view text, int deepest, const std::string& place) {
  int depth = 0;
  for (size_t i = text.find_first_of("\"[]{}"); i < text.size(); i = text.find_first_of("\"[]{}", i + 1)) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    } else if (++depth > deepest) {
      throw DataError(place + ": is nested too deeply: its lists and objects are nested more than " +
                      std::to_string(deepest) + " deep");
    }
  }
}

}  // namespace trainrun
