#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>

#include "registry/components/transforms/fields.h"
#include "registry/components/transforms/layout.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

/// Bytes that lie in order in memory as `outer` lists of `size` pieces of `piece` bytes.
struct Pieces {
  int64_t outer, size, piece;
};

/// Copies each list with its pieces in reverse order.
void mirror(const char* from, const Pieces& pieces, char* to) {
  const auto bytes = static_cast<size_t>(pieces.piece);
  for (int64_t list = 0; list < pieces.outer; ++list) {
    const char* piece = from + pieces.size * pieces.piece;
    for (int64_t i = 0; i < pieces.size; ++i, to += bytes) {
      piece -= bytes;
      std::memcpy(to, piece, bytes);
    }
    from += pieces.size * pieces.piece;
  }
}

/// The same for pieces that are numbers of a type.
template <class Number>
void mirror_numbers(const char* from, const Pieces& pieces, char* to) {
  const auto* source = reinterpret_cast<const Number*>(from);
  auto* target = reinterpret_cast<Number*>(to);
  for (int64_t list = 0; list < pieces.outer; ++list, source += pieces.size, target += pieces.size) {
    std::reverse_copy(source, source + pieces.size, target);
  }
}

/// An image is mirrored where its uniform number is less than p: kHorizontal, left to right.
template <bool kHorizontal>
struct RandomFlip {
  static constexpr const char* kName = kHorizontal ? "RandomHorizontalFlip" : "RandomVerticalFlip";
  double p = 0.5;
  std::string field = "image";

  static void describe(Fields<RandomFlip>& f) {
    f.optional("p", &RandomFlip::p)
        .at_least(0)
        .at_most(1)
        .doc(kHorizontal ? "probability that an image is mirrored, left to right"
                         : "probability that an image is turned upside down, as in a mirror below it");
    f.optional("field", &RandomFlip::field).doc("the field of the batch to change");
  }
  void change(DatasetInfo& info) const { image_field(info, field, kName); }
  Values values() const { return Values::kMoved; }
  void apply(Batch& batch, const SampleDraws& draws) const {
    at::Tensor& images = batch.at(field);  // [N, C, H, W]
    const at::Tensor source = in_order(images);
    const int64_t n = source.size(0);
    const int64_t bytes = static_cast<int64_t>(source.nbytes()) / std::max<int64_t>(n, 1);  // of an image
    const auto pieces = pieces_of(source);
    const auto mirror_piece = function_for(pieces.piece);
    at::Tensor result = at::empty_like(source);
    for (int64_t i = 0; i < n; ++i) {
      const char* from = static_cast<const char*>(source.const_data_ptr()) + i * bytes;
      char* to = static_cast<char*>(result.mutable_data_ptr()) + i * bytes;
      if (draws.of(i).uniform() < p) {
        mirror_piece(from, pieces, to);
      } else {
        std::memcpy(to, from, static_cast<size_t>(bytes));
      }
    }
    images = std::move(result);
  }
  static Pieces pieces_of(const at::Tensor& images) {
    const ImageLayout layout = layout_of(images);
    const int64_t pixel = layout.pixel * images.element_size();
    if (kHorizontal) return {layout.planes * images.size(2), images.size(3), pixel};
    return {layout.planes, images.size(2), images.size(3) * pixel};
  }
  static auto function_for(int64_t piece) {
    return piece == 1 ? mirror_numbers<uint8_t> : piece == 4 ? mirror_numbers<uint32_t> : mirror;
  }
  std::optional<RandomFlip> for_masks(double) const { return *this; }
  std::unique_ptr<Transform> build(const TransformInputs&) const { return stateless(*this); }
};

}  // namespace

void add_flip_transforms(TransformRegistry& transforms) {
  transforms.add<RandomFlip<true>>("RandomHorizontalFlip", "mirrors each image with some probability");
  transforms.add<RandomFlip<false>>("RandomVerticalFlip", "turns each image upside down with some probability");
}

}  // namespace trainrun
