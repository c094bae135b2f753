#include "registry/components/callbacks/text_samples.h"

#include "registry/kinds/callback.h"

namespace trainrun {
namespace {

struct TextSamples {
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 100;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  double repetition_penalty = 1;
  int64_t num_samples = 1;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;

  static void describe(Fields<TextSamples>& f) {
    using T = TextSamples;
    f.required("prompts", &T::prompts).not_empty("expected at least one prompt").doc("what the texts begin with");
    f.optional("max_new_tokens", &T::max_new_tokens).at_least(1).doc("tokens that each text gets at most");
    f.optional("temperature", &T::temperature)
        .at_least(0)
        .doc(
            "draw tokens, the logits divided by this; 0: always the most probable one, as without temperature, top_k "
            "and "
            "top_p; null: 1 where one of these is given");
    f.optional("top_k", &T::top_k)
        .at_least(0)
        .doc("draw from so many of the most probable tokens; 0: all; null: 50 where tokens are drawn");
    f.optional("top_p", &T::top_p)
        .greater_than(0)
        .at_most(1)
        .doc("draw from the fewest tokens that together are so probable; null: 1");
    f.optional("repetition_penalty", &T::repetition_penalty)
        .greater_than(0)
        .doc("makes tokens that the text has already less probable, where greater than 1");
    f.optional("num_samples", &T::num_samples).at_least(1).doc("texts for each prompt");
    f.optional("seed", &T::seed)
        .at_least(0)
        .doc("of the tokens that are drawn, the same at each evaluation; null: the run's");
    f.optional("stop", &T::stop).doc("a text ends before one of these comes");
  }
  void check(Checker& checker) const {
    for (const std::string& prompt : prompts) {
      if (prompt.empty()) checker.fail("prompts", "a prompt is empty; a text needs at least one token to begin with");
    }
    for (const std::string& word : stop) {
      if (word.empty()) checker.fail("stop", "an empty text comes everywhere");
    }
  }
  std::unique_ptr<Callback> build(const CallbackInputs&) const;

  GenerationOptions options(uint64_t run_seed) const {
    GenerationOptions made = with_wishes({}, {max_new_tokens, temperature, top_k, top_p, repetition_penalty});
    made.num_samples = num_samples;
    made.seed = seed ? static_cast<uint64_t>(*seed) : run_seed;
    made.stop = stop;
    return made;
  }
};

class TextWriter : public Callback, public WritesTexts {
 public:
  explicit TextWriter(TextSamples options) : options_(std::move(options)) {}
  bool reads_gradients(bool) const override { return false; }
  void use(TextSource& source) override {
    source.check(options_.prompts);
    source_ = &source;
  }
  Verdict after_evaluation(Run& run, const Figures&) override {
    if (source_) source_->show(options_.prompts, options_.options(run.seed()));
    return {};
  }

 private:
  TextSamples options_;
  TextSource* source_ = nullptr;
};

std::unique_ptr<Callback> TextSamples::build(const CallbackInputs&) const {
  return std::make_unique<TextWriter>(*this);
}

}  // namespace

void add_text_samples(CallbackRegistry& callbacks) {
  callbacks.add<TextSamples>("TextSamples",
                             "generates continuations of prompts after each evaluation; they are shown on the console "
                             "and written to samples/ in the run's folder");
}

}  // namespace trainrun
