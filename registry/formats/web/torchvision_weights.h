#pragma once

#include <optional>
#include <string>

namespace trainrun {

/// A file of weights that torchvision has, "resnet18-f37072fd.pth": its name ends in the first digits of its SHA-256.
struct TorchvisionFile {
  std::string name;

  /// Where torch.hub keeps it.
  std::string path() const;
  std::string url() const;
};

/// The file that "torchvision/…" names: a model, whose weights are then torchvision's DEFAULT ("torchvision/resnet50"); a
/// model and weights ("torchvision/resnet50@IMAGENET1K_V1", "torchvision/ResNet50_Weights.IMAGENET1K_V1"); or a file, with
/// or without .pth ("torchvision/resnet50-0676ba61"). Nothing where `value` does not begin so. Throws DataError for what
/// torchvision does not have.
std::optional<TorchvisionFile> torchvision_file(const std::string& value);

/// Brings the file where torch.hub keeps it, verified by the digest in its name, unless it is there. Throws DataError.
void fetch_torchvision(const TorchvisionFile& file);

}  // namespace trainrun
