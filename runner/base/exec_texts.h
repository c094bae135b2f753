#pragma once

#include <string>
#include <vector>

namespace trainrun {

/// What execve takes: pointers to the texts, which must outlive them, and a null at the end.
inline std::vector<char*> exec_texts(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace trainrun
