// Large headers, precompiled once for all targets (BuildSpeed.cmake says for which files). Files still include what
// they use: plugins, the installed headers and clangd see no precompiled header.
#pragma once

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>  // not torch/nn.h, whose templates each file instantiates anew: 2 s, of g++ and of clang

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
