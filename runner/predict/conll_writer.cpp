// A word and its tag a line, and an empty line behind each sentence, as CoNLL has them.
#include <algorithm>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/predict/prediction_writer.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr const char* kUntagged = "O";

class ConllLines : public LineMaker {
 public:
  std::string head(const ResultColumns& columns) override {
    words_ = place_of(columns, "words", "name the file of sentences to predict for: trainrun predict RUN FILE");
    tags_ = place_of(columns, "tags", "write --output FILE.jsonl");
    return "";
  }

  void append(std::string& text, const ResultColumns& columns, int64_t row) override {
    const json& words = list(columns[words_], row);
    const json& tags = list(columns[tags_], row);
    for (size_t i = 0; i < words.size(); ++i) {
      const auto& word = words[i].get_ref<const std::string&>();
      if (word.find_first_of("\t\r\n") != std::string::npos) {
        throw Error("predict: the word " + words[i].dump(-1, ' ', false, json::error_handler_t::replace) +
                    " contains a tab or a line break, which no line of CoNLL can hold; write --output FILE.jsonl");
      }
      const bool is_seen = i < tags.size() && tags[i].is_string();
      num_unseen_ += is_seen ? 0 : 1;
      text += word + "\t" + (is_seen ? tags[i].get<std::string>() : kUntagged) + "\n";
    }
    num_words_ += static_cast<int64_t>(words.size());
    text += '\n';
  }

  std::vector<std::string> notes() const override {
    if (num_unseen_ == 0) return {};
    return {counted(num_unseen_, "word", "words") + " of " + std::to_string(num_words_) +
            " got the tag O without having been seen by the model: they are behind max_length, or have no token"};
  }

 private:
  static size_t place_of(const ResultColumns& columns, const std::string& name, const std::string& advice) {
    const auto found = std::ranges::find(columns, name, &ResultColumn::name);
    const bool is_list = found != columns.end() && std::holds_alternative<std::vector<json>>(found->values);
    if (is_list) return static_cast<size_t>(found - columns.begin());
    throw Error("predict: CoNLL has a word and its tag in each line, and these predictions have no " + name + "; " +
                advice);
  }
  static const json& list(const ResultColumn& column, int64_t row) {
    return std::get<std::vector<json>>(column.values)[static_cast<size_t>(row)];
  }

  size_t words_ = 0;
  size_t tags_ = 0;
  int64_t num_words_ = 0;
  int64_t num_unseen_ = 0;
};

}  // namespace

std::unique_ptr<LineMaker> conll_lines() { return std::make_unique<ConllLines>(); }

}  // namespace trainrun
