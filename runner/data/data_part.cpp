#include "runner/data/data_part.h"

namespace trainrun {

bool names_evaluation_data(const std::string& change) {
  const std::string key = change.substr(0, change.find('='));
  return key.starts_with("dataset.eval") && (key.ends_with(".path") || key.ends_with(".root"));
}

std::string what_takes_a_part(const Component<DatasetKind>& data) {
  std::string path = data.path;
  for (const Value* written = &data.written; written; written = written->find("dataset")) {
    for (const char* key : {"split", "subset"}) {
      const Value* part = written->find(key);
      if (part && !part->is_null()) return path + "." + key;
    }
    path += ".dataset";
  }
  return "";
}

}  // namespace trainrun
