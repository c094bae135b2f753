#include "registry/formats/web/torchvision_weights.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "registry/formats/files/file_io.h"
#include "registry/formats/web/download.h"
#include "registry/formats/web/hub_cache.h"
#include "registry/formats/web/network.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

constexpr size_t kDigits = 8;  // of the SHA-256 in a file's name
constexpr std::string_view kTorchvision = "torchvision/";

struct PublishedWeights {
  const char* model;
  const char* weights;
  const char* file;  // without .pth
  bool is_default;
};

/// torchvision 0.29, torchvision/models: the weights of the models that are registered here.
constexpr auto kPublished =
    std::to_array<PublishedWeights>({{"resnet18", "IMAGENET1K_V1", "resnet18-f37072fd", true},
                                     {"resnet34", "IMAGENET1K_V1", "resnet34-b627a593", true},
                                     {"resnet50", "IMAGENET1K_V1", "resnet50-0676ba61", false},
                                     {"resnet50", "IMAGENET1K_V2", "resnet50-11ad3fa6", true},
                                     {"resnet101", "IMAGENET1K_V1", "resnet101-63fe2227", false},
                                     {"resnet101", "IMAGENET1K_V2", "resnet101-cd907fc2", true},
                                     {"resnet152", "IMAGENET1K_V1", "resnet152-394f9c45", false},
                                     {"resnet152", "IMAGENET1K_V2", "resnet152-f82ba261", true},
                                     {"wide_resnet50_2", "IMAGENET1K_V1", "wide_resnet50_2-95faca4d", false},
                                     {"wide_resnet50_2", "IMAGENET1K_V2", "wide_resnet50_2-9ba9bcbe", true},
                                     {"wide_resnet101_2", "IMAGENET1K_V1", "wide_resnet101_2-32ee1156", false},
                                     {"wide_resnet101_2", "IMAGENET1K_V2", "wide_resnet101_2-d733dc28", true},
                                     {"vgg11", "IMAGENET1K_V1", "vgg11-8a719046", true},
                                     {"vgg11_bn", "IMAGENET1K_V1", "vgg11_bn-6002323d", true},
                                     {"vgg13", "IMAGENET1K_V1", "vgg13-19584684", true},
                                     {"vgg13_bn", "IMAGENET1K_V1", "vgg13_bn-abd245e5", true},
                                     {"vgg16", "IMAGENET1K_V1", "vgg16-397923af", true},
                                     {"vgg16_bn", "IMAGENET1K_V1", "vgg16_bn-6c64b313", true},
                                     {"vgg19", "IMAGENET1K_V1", "vgg19-dcbb9e9d", true},
                                     {"vgg19_bn", "IMAGENET1K_V1", "vgg19_bn-c79401a0", true},
                                     {"mobilenet_v2", "IMAGENET1K_V1", "mobilenet_v2-b0353104", false},
                                     {"mobilenet_v2", "IMAGENET1K_V2", "mobilenet_v2-7ebf99e0", true},
                                     {"mobilenet_v3_large", "IMAGENET1K_V1", "mobilenet_v3_large-8738ca79", false},
                                     {"mobilenet_v3_large", "IMAGENET1K_V2", "mobilenet_v3_large-5c1a4163", true},
                                     {"mobilenet_v3_small", "IMAGENET1K_V1", "mobilenet_v3_small-047dcff4", true},
                                     {"efficientnet_b0", "IMAGENET1K_V1", "efficientnet_b0_rwightman-7f5810bc", true},
                                     {"efficientnet_b1", "IMAGENET1K_V1", "efficientnet_b1_rwightman-bac287d4", false},
                                     {"efficientnet_b1", "IMAGENET1K_V2", "efficientnet_b1-c27df63c", true},
                                     {"efficientnet_b2", "IMAGENET1K_V1", "efficientnet_b2_rwightman-c35c1473", true},
                                     {"efficientnet_b3", "IMAGENET1K_V1", "efficientnet_b3_rwightman-b3899882", true},
                                     {"efficientnet_b4", "IMAGENET1K_V1", "efficientnet_b4_rwightman-23ab8bcd", true},
                                     {"convnext_tiny", "IMAGENET1K_V1", "convnext_tiny-983f1562", true},
                                     {"vit_b_16", "IMAGENET1K_V1", "vit_b_16-c867db91", true},
                                     {"vit_b_16", "IMAGENET1K_SWAG_E2E_V1", "vit_b_16_swag-9ac1b537", false},
                                     {"vit_b_16", "IMAGENET1K_SWAG_LINEAR_V1", "vit_b_16_lc_swag-4e70ced5", false}});

/// Whether it ends as such files do: "-f37072fd".
bool has_digest(const std::string& stem) {
  const auto dash = stem.rfind('-');
  return dash != std::string::npos && stem.size() - dash - 1 == kDigits &&
         std::all_of(stem.end() - kDigits, stem.end(), [](unsigned char c) { return std::isxdigit(c); });
}

const PublishedWeights* find_published(const std::string& model, const std::string& weights) {
  for (const PublishedWeights& one : kPublished) {
    if (model == one.model && (weights.empty() || weights == "DEFAULT" ? one.is_default : weights == one.weights)) {
      return &one;
    }
  }
  return nullptr;
}

[[noreturn]] void fail_unknown(const std::string& value, const std::string& model) {
  std::vector<std::string> known, of_model;
  for (const PublishedWeights& one : kPublished) {
    if (one.is_default) known.push_back(std::string(kTorchvision) + one.model);
    if (model == one.model) of_model.push_back(std::string(kTorchvision) + one.model + "@" + one.weights);
  }
  if (!of_model.empty()) throw DataError(value + ": torchvision has no such weights; it has " + join(of_model));
  throw DataError(value + ": torchvision has no weights of this name" + suggestion(value, known));
}

}  // namespace

std::string TorchvisionFile::path() const {
  const std::string folder = torch_cache_folder();
  if (folder.empty())
    throw DataError(name + ": there is no folder for torch.hub's cache; set TORCH_HOME or HOME to one");
  return folder + "/" + name;
}

std::string TorchvisionFile::url() const {
  const char* mirror = std::getenv("TRAINRUN_TORCHVISION_URL");
  std::string folder = mirror && *mirror ? mirror : "https://download.pytorch.org/models";
  while (folder.ends_with('/')) folder.pop_back();
  return folder + "/" + name;
}

std::optional<TorchvisionFile> torchvision_file(const std::string& value) {
  if (!value.starts_with(kTorchvision)) return std::nullopt;
  std::string rest = value.substr(kTorchvision.size());
  if (rest.ends_with(".pth")) rest.erase(rest.size() - 4);
  if (rest.find('/') == std::string::npos && has_digest(rest)) return TorchvisionFile{rest + ".pth"};
  constexpr std::string_view kEnum = "_Weights.";
  std::string model = rest;
  std::string weights;
  if (const auto at = rest.find('@'); at != std::string::npos) {
    model = rest.substr(0, at);
    weights = rest.substr(at + 1);
  } else if (const auto dot = rest.find(kEnum); dot != std::string::npos) {
    model = rest.substr(0, dot);
    weights = rest.substr(dot + kEnum.size());
  }
  model = lower_ascii(model);
  const PublishedWeights* found = find_published(model, weights);
  if (!found) fail_unknown(value, model);
  return TorchvisionFile{std::string(found->file) + ".pth"};
}

void fetch_torchvision(const TorchvisionFile& file) {
  const std::string stem = file.name.substr(0, file.name.size() - 4);
  Download job;
  job.urls = {file.url()};
  job.destination = file.path();
  job.verify = [&](const std::string& path) {
    const std::string digest = digest_file(path).sha256;
    if (!digest.starts_with(stem.substr(stem.size() - kDigits))) {
      throw DataError("its content is damaged: its SHA-256 begins with " + digest.substr(0, kDigits));
    }
  };
  download(job, {file.name, "torchvision"});
}

}  // namespace trainrun
