#include "registry/image_data/camera_turns.h"

#include <algorithm>
#include <cstdint>

namespace trainrun {
namespace {

uint64_t byte_at(std::string_view bytes, size_t place) { return static_cast<unsigned char>(bytes[place]); }

/// The number in `size` bytes from `place` on, which must be there.
uint64_t number_at(std::string_view bytes, size_t place, size_t size, bool is_little) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number = number << 8 | byte_at(bytes, place + (is_little ? size - 1 - i : i));
  }
  return number;
}

/// The tag Orientation of EXIF data, from 1 to 8; 1, as it lies there, where they have none.
/// Source: Exif 2.32, 4.6.2 to 4.6.4: TIFF's header, and entries of 12 bytes each.
uint64_t orientation_in(std::string_view exif) {
  constexpr size_t kHeader = 8, kEntry = 12;
  constexpr uint64_t kOrientation = 0x0112, kShort = 3;
  if (exif.size() < kHeader || (!exif.starts_with("II") && !exif.starts_with("MM"))) return 1;
  const bool is_little = exif.starts_with("II");
  const uint64_t list = number_at(exif, 4, 4, is_little);
  if (list + 2 > exif.size()) return 1;
  const uint64_t count = number_at(exif, list, 2, is_little);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t entry = list + 2 + i * kEntry;
    if (entry + kEntry > exif.size()) return 1;
    if (number_at(exif, entry, 2, is_little) != kOrientation) continue;
    if (number_at(exif, entry + 2, 2, is_little) != kShort) return 1;
    return number_at(exif, entry + 8, 2, is_little);
  }
  return 1;
}

/// In a JPEG, the segments before the picture itself. Source: ITU-T T.81, annex B.
std::string_view exif_of_jpeg(std::string_view file) {
  constexpr uint64_t kMark = 0xff, kApp1 = 0xe1, kScan = 0xda;
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (size_t place = 2; place + 4 <= file.size() && byte_at(file, place) == kMark;) {
    const uint64_t kind = byte_at(file, place + 1);
    if (kind == kMark) {  // filling
      ++place;
      continue;
    }
    if (kind == kScan) break;
    const std::string_view segment =
        file.substr(place + 4, std::max<uint64_t>(number_at(file, place + 2, 2, false), 2) - 2);
    if (kind == kApp1 && segment.starts_with(kExif)) return segment.substr(kExif.size());
    place += 4 + segment.size();
  }
  return {};
}

/// In a PNG, the chunk eXIf. Source: PNG, third edition, 5.3 and 11.3.3.5.
std::string_view exif_of_png(std::string_view file) {
  constexpr size_t kBefore = 8, kSum = 4;
  for (size_t place = 8; place + kBefore <= file.size();) {
    const std::string_view content = file.substr(place + kBefore, number_at(file, place, 4, false));
    if (file.substr(place + 4, 4) == "eXIf") return content;
    place += kBefore + content.size() + kSum;
  }
  return {};
}

}  // namespace

bool is_turned_by_camera(std::string_view begin) {
  constexpr uint64_t kLast = 8;
  const std::string_view exif = begin.starts_with("\xff\xd8")      ? exif_of_jpeg(begin)
                                : begin.starts_with("\x89PNG\r\n") ? exif_of_png(begin)
                                                                   : std::string_view();
  const uint64_t orientation = orientation_in(exif);
  return orientation > 1 && orientation <= kLast;
}

std::string note_on_turned(size_t count, const std::function<std::string(size_t)>& begin_of,
                           const std::function<std::string(size_t)>& name_of) {
  constexpr size_t kLookedAt = 256;
  const size_t looked_at = std::min(count, kLookedAt);
  size_t num_turned = 0;
  std::string first;
  for (size_t i = 0; i < looked_at; ++i) {
    const size_t number = looked_at == 1 ? 0 : i * (count - 1) / (looked_at - 1);
    if (!is_turned_by_camera(begin_of(number))) continue;
    if (num_turned++ == 0) first = name_of(number);
  }
  if (num_turned == 0) return "";
  return std::to_string(num_turned) + " of " + std::to_string(looked_at) + (looked_at == 1 ? " picture" : " pictures") +
         (looked_at < count ? " that were looked at" : "") + (num_turned == 1 ? " has" : " have") +
         " an EXIF orientation, the first is " + first +
         "; they are read as their pixels lie, as torchvision reads them: to see them upright turn them first, by "
         "PIL.ImageOps.exif_transpose";
}

}  // namespace trainrun
