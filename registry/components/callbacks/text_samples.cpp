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
    f.required("prompts", &T::prompts).not_empty("expected at least one prompt").doc("the prompts");
    f.optional("max_new_tokens", &T::max_new_tokens)
        .at_least(1)
        .doc("maximum number of tokens to generate for each prompt");
    f.optional("temperature", &T::temperature)
        .at_least(0)
        .doc(
            "draw tokens from the logits divided by this; 0: always take the most probable token, as without "
            "temperature, top_k and top_p; null: 1 if top_k or top_p is given");
    f.optional("top_k", &T::top_k)
        .at_least(0)
        .doc("draw from this many of the most probable tokens; 0: all; null: 50 if tokens are drawn");
    f.optional("top_p", &T::top_p)
        .greater_than(0)
        .at_most(1)
        .doc("draw from the fewest tokens whose probabilities add up to this; null: 1");
    f.optional("repetition_penalty", &T::repetition_penalty)
        .greater_than(0)
        .doc("above 1: makes tokens that are already in the text less probable");
    f.optional("num_samples", &T::num_samples).at_least(1).doc("number of texts for each prompt");
    f.optional("seed", &T::seed)
        .at_least(0)
        .doc("seed of the draws, the same at each evaluation; null: the seed of the run");
    f.optional("stop", &T::stop).doc("strings at which generation stops");
  }
  void check(Checker& checker) const {
    for (const std::string& prompt : prompts) {
      if (prompt.empty()) checker.fail("prompts", "a prompt is empty; a text needs at least one token to begin with");
    }
    for (const std::string& word : stop) {
      if (word.empty()) checker.fail("stop", "an empty string occurs everywhere");
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
