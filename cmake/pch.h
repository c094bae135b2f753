// The headers that nearly every file includes anyway, precompiled once for all targets. Files still include what they
// use: plugins, the installed headers and clangd see no precompiled header.
#pragma once

#include <nlohmann/json.hpp>
#include <torch/nn.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
