#include "registry/formats/files/sha256_pair.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include <utility>

namespace trainrun {
namespace {

#define TRAINRUN_SHA __attribute__((target("sha,sse4.1")))
#define TRAINRUN_SHA_INLINE __attribute__((target("sha,sse4.1"), always_inline)) inline

constexpr size_t kBlock = 64;

/// The round constants of FIPS 180-4, section 4.2.2.
alignas(16) constexpr std::array<uint32_t, 64> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__m128i* vector_at(uint32_t* words) { return reinterpret_cast<__m128i*>(words); }

/// One of the two hashes: its state in the order of the instructions (words A, B, E, F and C, D, G, H), and the last
/// sixteen words of the message's schedule.
struct Lane {
  __m128i abef, cdgh;
  __m128i words[4];  // NOLINT(modernize-avoid-c-arrays): an index that is known to the compiler

  TRAINRUN_SHA void load(uint32_t* state) {
    const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(vector_at(state)), 0xB1);
    const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(vector_at(state + 4)), 0x1B);
    abef = _mm_alignr_epi8(badc, hgfe, 8);
    cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  }
  TRAINRUN_SHA void store(uint32_t* state) const {
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
    const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128(vector_at(state), _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128(vector_at(state + 4), _mm_alignr_epi8(dchg, feba, 8));
  }
  TRAINRUN_SHA_INLINE void take(const uint8_t* block) {
    const __m128i big_endian = _mm_set_epi64x(0x0C0D0E0F08090A0BLL, 0x0405060700010203LL);
    const auto* const from = reinterpret_cast<const __m128i*>(block);
    words[0] = _mm_shuffle_epi8(_mm_loadu_si128(from), big_endian);
    words[1] = _mm_shuffle_epi8(_mm_loadu_si128(from + 1), big_endian);
    words[2] = _mm_shuffle_epi8(_mm_loadu_si128(from + 2), big_endian);
    words[3] = _mm_shuffle_epi8(_mm_loadu_si128(from + 3), big_endian);
  }
};

/// Four rounds of a lane, from round 4 * kGroup on, and the schedule's next words.
template <int kGroup>
TRAINRUN_SHA_INLINE void four_rounds(Lane& lane) {
  constexpr int kNow = kGroup % 4, kNext = (kGroup + 1) % 4, kAfter = (kGroup + 2) % 4, kLast = (kGroup + 3) % 4;
  const __m128i constants = _mm_load_si128(reinterpret_cast<const __m128i*>(kConstants.data()) + kGroup);
  const __m128i sums = _mm_add_epi32(lane.words[kNow], constants);
  lane.cdgh = _mm_sha256rnds2_epu32(lane.cdgh, lane.abef, sums);
  if constexpr (kGroup < 12) {
    __m128i next = _mm_sha256msg1_epu32(lane.words[kNow], lane.words[kNext]);
    next = _mm_add_epi32(next, _mm_alignr_epi8(lane.words[kLast], lane.words[kAfter], 4));
    lane.words[kNow] = _mm_sha256msg2_epu32(next, lane.words[kLast]);
  }
  lane.abef = _mm_sha256rnds2_epu32(lane.abef, lane.cdgh, _mm_shuffle_epi32(sums, 0x0E));
}

template <int... kGroups>
TRAINRUN_SHA_INLINE void all_rounds(Lane& a, Lane& b, std::integer_sequence<int, kGroups...> /*groups*/) {
  ((four_rounds<kGroups>(a), four_rounds<kGroups>(b)), ...);
}

}  // namespace

bool has_sha256_pair() {
  static const bool has = [] {
    unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned int kSha = 1U << 29;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kSha) != 0;
  }();
  return has;
}

TRAINRUN_SHA void sha256_pair(const std::array<uint32_t*, 2>& states, const std::array<const uint8_t*, 2>& data,
                              size_t blocks) {
  Lane a, b;
  a.load(states[0]);
  b.load(states[1]);
  for (size_t i = 0; i < blocks; ++i) {
    const Lane a_before = a, b_before = b;
    a.take(data[0] + i * kBlock);
    b.take(data[1] + i * kBlock);
    all_rounds(a, b, std::make_integer_sequence<int, 16>());
    a.abef = _mm_add_epi32(a.abef, a_before.abef);
    a.cdgh = _mm_add_epi32(a.cdgh, a_before.cdgh);
    b.abef = _mm_add_epi32(b.abef, b_before.abef);
    b.cdgh = _mm_add_epi32(b.cdgh, b_before.cdgh);
  }
  a.store(states[0]);
  b.store(states[1]);
}

}  // namespace trainrun

#else

namespace trainrun {

bool has_sha256_pair() { return false; }
void sha256_pair(const std::array<uint32_t*, 2>& /*states*/, const std::array<const uint8_t*, 2>& /*data*/,
                 size_t /*blocks*/) {}

}  // namespace trainrun

#endif
