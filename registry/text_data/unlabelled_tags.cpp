// Sentences of words without labels.
#include <ATen/ops/tensor.h>

#include "registry/text_data/files_in_turn.h"
#include "registry/text_data/tagged_texts.h"

namespace trainrun {
namespace {

std::vector<ValueColumn> lines_and_words(const TaggedTexts& sentences, int64_t first) {
  std::vector<int64_t> lines;
  std::vector<nlohmann::json> words;
  for (int64_t i = first; i < sentences.size(); ++i) {
    lines.push_back(sentences.line(i));
    const std::span<const std::string> own = sentences.words(i);
    words.emplace_back(std::vector<std::string>(own.begin(), own.end()));
  }
  return {{"line", at::tensor(lines, at::kLong)}, {"words", std::move(words)}};
}

}  // namespace

std::unique_ptr<UnlabelledData> read_unlabelled_tags(const UnlabelledSource& source, const TaggedTexts& like) {
  std::vector<FileInTurn> files;
  for (const std::string& path : source.paths) {
    const std::shared_ptr<TaggedTexts> sentences = like.unlabelled(path);
    const std::weak_ptr<TaggedTexts> open = sentences;  // it is held by its file
    files.push_back({path, sentences, [open](int64_t first) { return lines_and_words(*open.lock(), first); }});
  }
  return files_in_turn(source, std::move(files));
}

}  // namespace trainrun
