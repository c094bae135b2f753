#pragma once

#include <string>
#include <vector>

#include "runner/interop/python/expression.h"

// Parts of a program that are always the same, and its lines while it is put together.

namespace trainrun::python {

inline constexpr const char* kSamples = R"(class Samples(Dataset):
    """Tensors by name, one row of each a sample."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, index):
        return {name: tensor[index] for name, tensor in self.tensors.items()}
)";

inline constexpr const char* kTransformedSamples = R"(class Samples(Dataset):
    """Tensors by name, one row of each a sample; images are transformed one by one."""

    def __init__(self, tensors, transform):
        self.tensors = tensors
        self.transform = transform

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def __getitem__(self, index):
        sample = {name: tensor[index] for name, tensor in self.tensors.items()}
        return sample | {"image": self.transform(sample["image"])}
)";

inline constexpr const char* kBatchWindows = R"(def windows(loader, size):
    """The batches of each step; the last step of an epoch may have fewer."""
    batches = iter(loader)
    while window := list(itertools.islice(batches, size)):
        yield window
)";

inline constexpr const char* kMain = R"(def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", help="a .safetensors file with the weights to begin with")
    parser.add_argument("--losses", help="write the loss of each step and the last evaluation to this JSON file")
    parser.add_argument("--output", default=OUTPUT, help="where the trained weights go")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
)";

inline std::string joined(const std::vector<std::string>& items, const std::string& with = ", ") {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : with) + item;
  return text;
}

/// Lines of a function.
class Body {
 public:
  explicit Body(size_t indentation = 1) : indentation_(indentation) {}
  Body& line(const std::string& text) {
    text_ += indented(text, 4 * indentation_);
    return *this;
  }
  Body& in() {
    ++indentation_;
    return *this;
  }
  Body& out() {
    --indentation_;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  size_t indentation_;
  std::string text_;
};

}  // namespace trainrun::python
