#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace trainrun {

/// Images that were decoded ahead: [H, W, C] bytes each; where that failed, undefined, and what was wrong.
struct DecodedImages {
  std::vector<at::Tensor> images;
  std::vector<std::string> faults;  // "" where there is none
  std::string note = {};            // what a user should know of them; "": nothing
};
/// Image number `i`. Throws DataError where it cannot be decoded; called from several threads.
using DecodeImage = std::function<at::Tensor(size_t i)>;

/// Decodes images `first` … `last - 1` of those that `into` has room for, on several threads; keeps them, or only sees
/// whether it goes well.
void decode_ahead(const DecodeImage& decode, size_t first, size_t last, bool keep, DecodedImages& into);

/// The `count` images that lie in these files, from a file on the disk that holds them decoded and is mapped into memory, so that
/// processes share it. Where there is none for these files, as long and as old as they are now, or a damaged one, it is
/// made first, by one process while others wait. It lies in the user's cache folder under `images/`. `kind` says what else the result
/// depends on. Throws DataError where there is no such folder, FileError where it cannot be written.
DecodedImages decoded_on_disk(const std::vector<std::string>& files, size_t count, const std::string& kind,
                              const DecodeImage& decode);

}  // namespace trainrun
