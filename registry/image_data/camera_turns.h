#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace trainrun {

/// How many bytes of a picture's file are enough to see whether it is turned.
inline constexpr size_t kTurnBytes = 1 << 14;

/// Whether a photograph says of itself that its pixels have to be turned or mirrored to be seen as they were taken: the
/// orientation in the EXIF data of a JPEG or PNG file, which torchvision and `decode_image` do not look at. `begin`: the
/// first bytes of the file. Nothing that is damaged is turned.
bool is_turned_by_camera(std::string_view begin);

/// "12 of 64 pictures are turned …", of some pictures from the first to the last of `count`; "" where none is. `begin_of`
/// gives the first bytes of a picture's file, or "", and `name_of` its name.
std::string note_on_turned(size_t count, const std::function<std::string(size_t)>& begin_of,
                           const std::function<std::string(size_t)>& name_of);

}  // namespace trainrun
