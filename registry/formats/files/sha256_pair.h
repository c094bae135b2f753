#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trainrun {

/// Whether `sha256_pair` may be called: the processor has instructions for SHA-256 (x86-64's SHA extensions).
bool has_sha256_pair();

/// Takes whole blocks of 64 bytes into two states of SHA-256 (eight words each; FIPS 180-4, section 6.2.2), `blocks` into
/// each, by turns: an instruction for one runs while that for the other is waited for.
void sha256_pair(const std::array<uint32_t*, 2>& states, const std::array<const uint8_t*, 2>& data, size_t blocks);

}  // namespace trainrun
