#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainrun {

/// All images of a data set in their order, none opened.
struct ImageListing {
  std::vector<std::string> files;      // their paths; of those in archives, what they are called in messages
  std::vector<std::string> masks;      // where there are no labels
  at::Tensor labels;                   // [N] classes, int64; or [N, K] numbers, float32
  std::optional<int64_t> num_classes;  // of labels that are classes
  std::vector<std::string> classes;    // their names; empty: they have none
  bool labels_are_indices = false;     // there can be no names, and a number is that of a class whatever it is called

  struct Piece {
    size_t archive = 0;  // its number
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  std::vector<std::string> archives;
  std::vector<Piece> pieces;  // of the archives: where each image lies; empty: in a file of its own

  std::string list;            // the file that names the images
  std::vector<int64_t> lines;  // where it names each; empty: there is none
  /// "FILE:LINE"
  std::string place(size_t number) const { return list + ":" + std::to_string(lines[number]); }

  /// What is wrong with images that can be seen not to be readable, each a message that begins with the file.
  std::vector<std::string> unread;
  std::string passed_over;       // a note on what else lies there; "" for none
  std::vector<int64_t> numbers;  // of the images in the list that was read, where some of it are left out; empty: all
};

}  // namespace trainrun
