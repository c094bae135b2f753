#include "registry/formats/files/csv_text.h"

#include "registry/language/text_forms.h"

namespace trainrun {

std::string csv_field(std::string_view text) {
  return text.find_first_of(",\"\r\n") == std::string_view::npos ? std::string(text) : in_marks(text, '"');
}

std::string csv_record(const std::vector<std::string>& fields) {
  std::string record;
  for (size_t i = 0; i < fields.size(); ++i) record += (i == 0 ? "" : ",") + csv_field(fields[i]);
  return record + "\n";
}

}  // namespace trainrun
