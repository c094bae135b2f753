#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/text/jinja/expression.h"

namespace trainrun::jinja {

/// How a statement ends.
enum class Flow { kNext, kBreak, kContinue };

/// Statements, one after the other.
class Block {
 public:
  using Statement = std::function<Flow(Context&)>;
  void add(int line, int height, Statement statement);
  Flow run(Context& context) const;
  /// Runs with variables of its own.
  Flow run_inside(Context& context, Scope& scope) const;
  /// What it writes, in a scope of its own.
  std::string text(Context& context) const;
  /// How many blocks and expressions lie in each other in it.
  int height() const { return height_; }

 private:
  struct Line {
    int number;
    Statement statement;
  };
  std::vector<Line> lines_;
  int height_ = 0;
};

/// A block that statements share.
using SharedBlock = std::shared_ptr<const Block>;

/// Reads the statements of a template. Throws TemplateError: "line 3: message".
class BlockParser {
 public:
  explicit BlockParser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}
  /// All statements up to one of these tags, whose name comes next; or up to the end.
  SharedBlock block(const std::vector<std::string_view>& ends);
  /// The whole template.
  Block whole();
  bool marks() const { return marks_; }

 private:
  using Target = std::function<void(Context&, const Value&)>;
  struct Parameter {
    std::string name;
    Expression otherwise;  // may be empty
  };
  struct Macro {
    std::string name;
    std::vector<Parameter> parameters;
    SharedBlock body;
  };

  void statement(Block& into);
  void for_loop(Block& into, int line);
  void if_else(Block& into, int line);
  void set(Block& into, int line);
  void macro(Block& into, int line);
  void call_block(Block& into, int line);
  void filter_block(Block& into, int line);
  void with(Block& into, int line);
  void generation(Block& into, int line);
  void control(Block& into, int line, Flow flow);

  /// What is assigned to: a name, several with commas, or with `has_attributes` also `space.name`.
  Target target(bool has_attributes);
  Target single_target(bool has_attributes);
  std::vector<Parameter> parameters();
  SharedBlock body(const std::vector<std::string_view>& ends);
  SharedBlock kept_body(std::string_view end);
  void end_tag() { tokens_.expect_kind(Token::Kind::kBlockEnd, "%}"); }
  static Value function_of(Context& context, const std::shared_ptr<const Macro>& macro);

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;  // that stand around
  bool marks_ = false;
};

}  // namespace trainrun::jinja
