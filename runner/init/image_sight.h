#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainrun {

/// What is seen of some of the pictures of a data set.
struct ImageSight {
  int64_t seen = 0;  // how many were opened
  int64_t broken = 0;
  std::string first_broken;
  int64_t copies = 0;    // files that are like another
  int64_t compared = 0;  // how many files were
  bool is_gray = true;
  bool is_one_size = true;
  int64_t height = 0, width = 0;          // the median
  int64_t least_side = 0, most_side = 0;  // of any
  std::vector<double> mean, deviation;    // of each channel: three, or one where all are gray
};
/// Opens some of the files, evenly chosen.
ImageSight look_at_images(const std::vector<std::string>& files);

}  // namespace trainrun
