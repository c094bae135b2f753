#pragma once

#include <optional>
#include <string>

#include "registry/formats/web/hub_name.h"

namespace trainrun {

/// What is needed of a published model: its tokenizer, or config.json and weights (and its tokenizer, if it has one).
enum class PublishedPart { kTokenizer, kWeights };

/// The folder that a recipe names by its path or by the model's name on Hugging Face's hub, "org/name@revision". What has
/// this path wins; so does what looks like a path (hub_name.h). A name is looked for in the cache that Hugging Face's
/// libraries share, else fetched into it where the network is allowed (network.h). Where it is not, a model's folder may
/// be one with config.json and without weights. Throws DataError for a name that cannot be had. What is neither there nor
/// a name is returned as it is.
std::string model_folder(const std::string& named, PublishedPart part);

/// The same for a file or folder of weights, which may also be torchvision's: "torchvision/resnet18".
std::string weights_path(const std::string& named);

/// Where the files of a name would come from.
struct NamedSource {
  std::string text;         // "bert-base-cased is in the cache: /root/.cache/…", "… is fetched from https://…"
  bool is_cached = false;   // all that is needed
  bool has_config = false;  // what tells of shapes: of a model, its config.json
};
/// "bert-base-cased is not in the cache (…); a run fetches it from https://…"
std::string not_in_cache_text(const HubName& name);
/// Nothing for what is a path. Opens no network. Throws DataError for a name that torchvision does not have.
std::optional<NamedSource> source_of_model(const std::string& named, PublishedPart part);
std::optional<NamedSource> source_of_weights(const std::string& named);

/// The name of the model whose snapshot in the hub's cache this folder is, "org/name@COMMIT"; the folder itself if it is
/// none.
std::string published_name(const std::string& folder);

}  // namespace trainrun
