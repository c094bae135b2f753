#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <list>
#include <mutex>

#include "registry/data/path_patterns.h"
#include "registry/formats/files/regular_file.h"
#include "registry/image_data/image_samples.h"
#include "registry/image_data/shards/shard_index.h"
#include "registry/image_data/shards/shard_order.h"
#include "registry/image_data/shards/tar_source.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {
namespace {

struct Shards : ImageOptions {
  std::variant<std::string, std::vector<std::string>> path;
  std::optional<std::string> image;
  std::string label = "cls";
  std::optional<int64_t> num_classes;
  int64_t shuffle_buffer = 10'000;

  static void describe(Fields<Shards>& f) {
    f.required("path", &Shards::path)
        .not_empty("expected at least one file")
        .doc(
            "the .tar files, not compressed: photos-{0000..0009}.tar, photos-*.tar, or a list of these. The files of a "
            "sample follow each other and differ in what comes after the first dot: 0001.jpg, 0001.cls");
    f.optional("image", &Shards::image)
        .doc("extension (all after the first dot) of the image file; null: the extension of an image format");
    f.optional("label", &Shards::label)
        .not_empty("expected the extension of a file name, without its first dot")
        .doc(
            "what follows the first dot in the name of the label's file, a text with a number from 0, such as cls or "
            "txt; or json.KEY, the number under KEY of the file .json");
    f.optional("num_classes", &Shards::num_classes)
        .at_least(1)
        .doc("number of classes; null: one more than the largest label");
    f.optional("shuffle_buffer", &Shards::shuffle_buffer)
        .at_least(1)
        .doc(
            "with shuffling, the shards are read in random order, and each sample is drawn from this many of the next "
            "samples; 1: samples follow each other as in the shards");
    describe_classes_into(f);
    describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// Reads pieces of files, the last ones used of which stay open. For several threads.
class OpenFiles {
 public:
  std::string read(const std::string& path, const ImageListing::Piece& piece) {
    const std::shared_ptr<const Descriptor> file = open_file(path);
    std::string bytes(piece.size, '\0');
    for (uint64_t done = 0; done < piece.size;) {
      const auto offset = static_cast<off_t>(piece.offset + done);
      const ssize_t got = pread(file->number(), bytes.data() + done, piece.size - done, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw ReadError(path, "read", errno);
      if (got == 0) throw DataError(path + ": was cut off since its members were listed");
      done += static_cast<uint64_t>(got);
    }
    return bytes;
  }

 private:
  static constexpr size_t kMostOpen = 32;

  std::shared_ptr<const Descriptor> open_file(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(files_.begin(), files_.end(), [&](const auto& file) { return file.first == path; });
    if (found != files_.end()) {
      files_.splice(files_.begin(), files_, found);
    } else {
      files_.emplace_front(path, std::make_shared<const Descriptor>(open_regular_file(path)));
      if (files_.size() > kMostOpen) files_.pop_back();
    }
    return files_.front().second;
  }

  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const Descriptor>>> files_;  // the last one used first
};

class ShardsDataset : public ImageSamples {
 public:
  explicit ShardsDataset(const Shards& options) : ImageSamples(options), options_(options) {}

  DatasetFacts facts() const override {
    DatasetFacts facts = ImageSamples::facts();
    facts.own_order = [this](uint64_t seed, int64_t epoch) {
      std::vector<int64_t> sizes(listing().archives.size());  // in samples
      for (const Listing::Piece& piece : listing().pieces) ++sizes[piece.archive];
      return at::tensor(shard_order(sizes, options_.shuffle_buffer, seed, epoch), at::kLong);
    };
    return facts;
  }

 protected:
  Listing list() const override {
    Listing listing;
    const auto* one = std::get_if<std::string>(&options_.path);
    listing.archives =
        matching_paths(one ? std::vector{*one} : std::get<std::vector<std::string>>(options_.path), "Shards");
    PassedOver passed_over;
    const std::vector<std::vector<ShardSample>> indices = read_indices(listing.archives, passed_over);
    listing.passed_over = passed_over.text();
    std::vector<int64_t> labels;
    for (size_t shard = 0; shard < indices.size(); ++shard) {
      for (const ShardSample& sample : indices[shard]) {
        listing.files.push_back(listing.archives[shard] + ":" + sample.name);
        listing.pieces.push_back({shard, sample.offset, sample.size});
        labels.push_back(sample.label);
      }
    }
    add_empty(indices, listing);
    if (labels.empty()) throw DataError("Shards: " + listing.archives[0] + ": holds no samples");
    listing.num_classes = options_.num_classes.value_or(*std::max_element(labels.begin(), labels.end()) + 1);
    listing.labels = at::tensor(labels, at::kLong);
    listing.labels_are_indices = true;
    return listing;
  }
  std::string read_image(size_t number) const override {
    const Listing::Piece& piece = listing().pieces[number];
    return open_files_.read(listing().archives[piece.archive], piece);
  }
  Sources sources() const override {
    std::string within = ", of shards: " + options_.image.value_or("any image");
    for (const int64_t number : listing().numbers) within += " " + std::to_string(number);
    return {listing().archives, within};
  }

 private:
  static void add_empty(const std::vector<std::vector<ShardSample>>& indices, Listing& listing) {
    std::vector<std::string> empty;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].empty()) empty.push_back(listing.archives[i]);
    }
    const std::string note = note_on_empty_files(empty, indices.size(), "samples");
    if (!note.empty()) listing.passed_over += (listing.passed_over.empty() ? "" : "; ") + note;
  }
  /// Of each shard; several at a time.
  std::vector<std::vector<ShardSample>> read_indices(const std::vector<std::string>& paths,
                                                     PassedOver& passed_over) const {
    std::vector<PassedOver> passed_over_in(paths.size());
    std::vector<std::vector<ShardSample>> indices(paths.size());
    std::vector<std::exception_ptr> faults(paths.size());  // of which the first counts, whichever was found first
    const ShardNames names{options_.image, options_.label, options_.num_classes};
    at::parallel_for(0, static_cast<int64_t>(paths.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          indices[i] = read_shard(tar_in_plain_file(paths[i]), names, &passed_over_in[i]);
        } catch (const DataError&) {
          faults[i] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& fault : faults) {
      if (fault) std::rethrow_exception(fault);
    }
    for (const PassedOver& own : passed_over_in) passed_over.add(own);
    return indices;
  }

  Shards options_;
  mutable OpenFiles open_files_;
};

std::unique_ptr<Dataset> Shards::build(const DatasetInputs&) const { return std::make_unique<ShardsDataset>(*this); }

}  // namespace

void add_shards(DatasetRegistry& datasets) {
  datasets.add<Shards>("Shards", "images in .tar files, with their labels, as in WebDataset");
}

}  // namespace trainrun
