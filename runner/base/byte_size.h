#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainrun {

/// Bytes as people write them: `8GB`, `512MiB`, `1.5 TB`. kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB
/// powers of 1024; the case of letters does not matter. Nothing where `text` is no such size of one byte or more.
std::optional<int64_t> parse_bytes(const std::string& text);

}  // namespace trainrun
