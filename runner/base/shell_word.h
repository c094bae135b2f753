#pragma once

#include <string>

namespace trainrun {

/// `text` as one word of a bash command line, on one line whatever it holds.
std::string shell_word(const std::string& text);

}  // namespace trainrun
