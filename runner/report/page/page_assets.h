#pragma once

#include <string_view>

namespace trainrun {

// Files that pages have within them, put into the program as it is built (cmake/PageAssets.cmake).

/// Chart.js, whose licence (MIT) is named within.
std::string_view chart_library();
/// What a report does with it, and how it looks.
std::string_view report_script();
std::string_view report_style();

}  // namespace trainrun
