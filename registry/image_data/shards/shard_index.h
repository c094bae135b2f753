#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/image_data/image_files.h"
#include "registry/image_data/shards/tar_source.h"

namespace trainrun {

/// Which members of a shard make a sample: those that follow each other and whose names are alike up to the first dot.
struct ShardNames {
  std::optional<std::string> image = {};  // what follows the dot; nothing: what image files end with
  std::string label = "cls";              // the same of a text with a number, or json.KEY
  std::optional<int64_t> num_classes = {};
};

/// A sample of a shard: its image is bytes `offset` … `offset + size - 1` of the file.
struct ShardSample {
  std::string name;  // of the image
  uint64_t offset = 0;
  uint64_t size = 0;
  int64_t label = 0;
};

/// The samples of a shard in their order, found by reading headers and labels, and passing over images. Throws
/// DataError, which names shard and member, where the archive is damaged or cut off, an image or a label is missing, or
/// a label is not a number from 0. Members that belong to no sample are counted in `passed_over`, if it is given.
std::vector<ShardSample> read_shard(std::unique_ptr<TarSource> shard, const ShardNames& names,
                                    PassedOver* passed_over = nullptr);

}  // namespace trainrun
