#include "runner/train/batch_pictures.h"

#include <algorithm>

#include "registry/formats/images/encode.h"
#include "runner/data/picture.h"

namespace trainrun {

std::vector<LoggedPicture> batch_pictures(const Batch& batch, int64_t most) {
  constexpr int64_t kPictureDims = 4;
  std::vector<LoggedPicture> pictures;
  for (const Batch::Field& field : batch.fields()) {
    if (field.tensor.dim() != kPictureDims) continue;
    const int64_t channels = field.tensor.size(1);
    if (channels != 1 && channels != 3) continue;
    for (int64_t i = 0; i < std::min(most, field.tensor.size(0)); ++i) {
      at::Tensor values = field.tensor[i].detach().cpu();
      if (values.scalar_type() == at::kByte) values = values.to(at::kFloat) / 255;
      const at::Tensor picture = picture_of(values);
      if (!picture.defined()) break;
      pictures.push_back({field.name + "/" + std::to_string(i), picture.size(0), picture.size(1), picture.size(2),
                          encode_png(picture)});
    }
  }
  return pictures;
}

}  // namespace trainrun
