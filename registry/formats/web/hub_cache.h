#pragma once

#include <optional>
#include <string>

#include "registry/formats/web/hub_name.h"

namespace trainrun {

/// Where Hugging Face's libraries keep what they fetched: HF_HUB_CACHE, else `hub` in HF_HOME, else in `huggingface` in
/// XDG_CACHE_HOME, else in ~/.cache. "" where none of these is set.
std::string hub_cache_folder();
/// Where torch.hub keeps what it fetched: `hub/checkpoints` in TORCH_HOME, else in `torch` in XDG_CACHE_HOME or ~/.cache.
std::string torch_cache_folder();

/// "https://huggingface.co", or what HF_ENDPOINT says, without a slash at its end.
std::string hub_endpoint();
/// The page of a repository: "https://huggingface.co/org/name".
std::string hub_page(const HubName& name);
/// The user's token: HF_TOKEN, or the file that Hugging Face's libraries write. "" for none.
std::string hub_token();
/// The variable by which the user asks for no network, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE, for data sets also
/// HF_DATASETS_OFFLINE; "" for none.
std::string offline_variable(HubKind kind = HubKind::kModel);

/// A repository's folder in the cache, as Hugging Face's libraries lay it out: blobs/ETAG, snapshots/COMMIT/FILE, which
/// are links to blobs, and refs/REVISION, which hold a commit.
class HubCache {
 public:
  explicit HubCache(const HubName& name);

  const std::string& folder() const { return folder_; }
  /// The commit that the cache has for the revision; nothing where it has none.
  std::optional<std::string> commit() const;
  std::string snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
  std::string blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }
  /// The file with the names of all files of a commit, as huggingface_hub 2.4 keeps it.
  std::string tree(const std::string& commit) const { return folder_ + "/trees/" + commit + ".json"; }
  /// The file whose lock whoever writes the blob holds.
  std::string lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }

  /// Makes `file` of the commit appear: a relative link to the blob.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  /// Notes that the commit has no such file, as Hugging Face's libraries do.
  void note_missing(const std::string& commit, const std::string& file) const;
  /// Notes that the revision is this commit.
  void set_commit(const std::string& commit) const;

 private:
  HubName name_;
  std::string folder_, locks_;
};

}  // namespace trainrun
