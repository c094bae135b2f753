#include <nlohmann/json.hpp>

#include <filesystem>

#include "registry/data/data_files.h"
#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"

// Pictures that lie in memory as tensors.

namespace trainrun::python {
namespace {

using nlohmann::json;

std::string call_with_split(const std::string& function, const Component<DatasetKind>* set) {
  return set ? function + "(" + literal(set->attributes.at("split")) + ")" : "";
}

constexpr const char* kDigits = R"(def load_digits(split):
    """Images [N, 1, 8, 8] in [0, 1] and labels [N]; SHARE of each class's images are for testing."""
    rows = torch.from_numpy(np.loadtxt(DIGITS_FILE, dtype=np.int64, delimiter=","))
    images, labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64]
    generator = torch.Generator().manual_seed(SEED_OF_SPLIT)
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        own = (labels == digit).nonzero().flatten()
        order = torch.randperm(len(own), generator=generator)
        is_test[own[order[: round(SHARE * len(own))]]] = True
    chosen = is_test if split == "test" else ~is_test
    return {"image": images[chosen], "label": labels[chosen]}
)";

constexpr const char* kIdx = R"(def load_NAME(split):
    """Images [N, 1, 28, 28] and labels [N]."""
    prefix = "train" if split == "train" else "t10k"
    images = read_idx(f"{ROOT}/{prefix}-images-idx3-ubyte")
    labels = read_idx(f"{ROOT}/{prefix}-labels-idx1-ubyte")
    return {"image": images.unsqueeze(1), "label": labels.long()}
)";

constexpr const char* kReadIdx = R"(def read_idx(path):
    """The bytes of an IDX file, plain or gzipped."""
    content = Path(path).read_bytes() if Path(path).exists() else gzip.decompress(Path(path + ".gz").read_bytes())
    dims = content[3]
    shape = np.frombuffer(content, ">i4", count=dims, offset=4)
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dims).reshape(shape).copy())
)";

}  // namespace

Data digits_data(const DataSource& source) {
  for (const auto* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"split", "test_fraction", "seed"});
  }
  source.file.import("import numpy as np");
  const std::string path =
      "recipes/data/digits.csv.gz";  // as it is written in the project's folder, and found from others
  source.file.constant("DIGITS_FILE", quoted(std::filesystem::exists(path) ? path : shipped_file(path)));
  std::string text = kDigits;
  text = replaced(text, "SHARE", literal(source.train.attributes.at("test_fraction")));
  text = replaced(text, "SEED_OF_SPLIT", source.train.attributes.at("seed").dump());
  source.file.define("load_digits", text);
  Data data;
  data.statements = calls(call_with_split("load_digits", &source.train), call_with_split("load_digits", source.eval));
  return data;
}

Data idx_data(const DataSource& source) {
  for (const auto* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"root", "split", "download", "mirrors"});
  }
  source.file.import("import gzip");
  source.file.import("from pathlib import Path");
  source.file.import("import numpy as np");
  std::string name;
  for (const char c : source.train.type) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  source.file.constant("DATA_FOLDER", literal(source.train.attributes.at("root")));
  source.file.define("read_idx", kReadIdx);
  source.file.define("load_" + name, replaced(replaced(kIdx, "NAME", name), "{ROOT}", "{DATA_FOLDER}"));
  Data data;
  data.bytes = {"image"};
  data.statements = calls(call_with_split("load_" + name, &source.train), call_with_split("load_" + name, source.eval));
  return data;
}

}  // namespace trainrun::python
