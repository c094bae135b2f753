#pragma once

#include <map>
#include <string>

#include "registry/formats/text/jinja/value.h"

namespace trainrun::jinja {

/// The filters that go through lists, by their names.
const std::map<std::string, Value (*)(Budget&, const Value&, const Arguments&)>& list_filters();

}  // namespace trainrun::jinja
