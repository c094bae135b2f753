#pragma once

namespace trainrun::test {

/// Whether this program runs under AddressSanitizer, where a fork takes five times as long, and what is compiled without
/// optimization ten times.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace trainrun::test
