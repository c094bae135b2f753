#pragma once

#include <string>
#include <string_view>

namespace trainrun {

/// `text` in ASCII letters, digits and the characters of `also`: letters lose their accents ("Umsätze" becomes
/// "Umsatze"), and every other character becomes `other`. Different texts may become the same.
std::string ascii_name(std::string_view text, std::string_view also, char other);

}  // namespace trainrun
