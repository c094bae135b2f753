#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "registry/language/parameters.h"

namespace trainrun {

/// Of kinds whose components say nothing of themselves before they are built.
struct NoFacts {};
/// `Kind::Facts`, else NoFacts.
template <class Kind>
struct FactsOf {
  using Type = NoFacts;
};
template <class Kind>
  requires requires { typename Kind::Facts; }
struct FactsOf<Kind> {
  using Type = typename Kind::Facts;
};

/// Of kinds whose components have no form outside of trainrun.
template <class Kind>
struct FormOf {
  struct Type {};
  template <class C>
  static constexpr Type of() {
    return {};
  }
};
/// `Kind::Form`, that of a component C as `Kind::form_of<C>()` finds it.
template <class Kind>
  requires requires { typename Kind::Form; }
struct FormOf<Kind> {
  using Type = typename Kind::Form;
  template <class C>
  static constexpr Type of() {
    return Kind::template form_of<C>();
  }
};

/// A component that a recipe names, read and checked and ready to be built. `Kind` (LayerKind, LossKind, …) describes
/// the kind of component:
///   Kind::kName      "layer", for messages
///   Kind::Inputs     what `build` receives
///   Kind::Product    what `build` returns
///   Kind::Common     a Section of the parameters that every component of the kind has
///   static void Kind::finish(Component<Kind>&, const Value&, Reader&)   optional: reads what the kind adds
///   Kind::Facts      optional: what a component says of itself before it is built
///   Kind::Form, Kind::form_of<C>()   optional: how a component of type C is written for other programs
template <class Kind>
struct Component {
  std::string type;
  Place place;
  std::string path;  // "model.layers[2]"
  Value written;     // the mapping, or the bare name, in the recipe
  typename Kind::Common common;
  std::shared_ptr<const void> options;  // the component's own struct
  const std::type_info* options_type = nullptr;
  typename FormOf<Kind>::Type form{};
  nlohmann::json attributes;  // all its own parameters by name, defaults included
  std::function<typename Kind::Product(const typename Kind::Inputs&)> build;
  /// What it says of itself, as it would be built: Kind's facts as they are initially where it has no `facts(inputs)`.
  std::function<typename FactsOf<Kind>::Type(const typename Kind::Inputs&)> facts;
  /// Reads another set of options of the same type, as parameter groups need.
  std::function<std::shared_ptr<const void>(const Value&, Reader&)> read_options;

  /// The component's own struct if its type is `C`, else nullptr.
  template <class C>
  const C* as() const {
    return options_type && *options_type == typeid(C) ? static_cast<const C*>(options.get()) : nullptr;
  }
};

/// The components of one kind, by name. An ordinary value; copies share their entries until something is added to one.
template <class Kind>
class Registry {
 public:
  struct Entry {
    std::string name;
    std::string doc;
    std::string origin;  // "" for a built-in, else the plugin's file
    std::vector<Parameter> parameters;
    std::vector<nlohmann::json> relations;  // between parameters: see Fields
    std::vector<std::string> wanted;        // see FieldList::wanted
    std::function<void(const Value&, Reader&, Component<Kind>&)> read;
  };

  /// Adds component `C`: a struct with `static void describe(Fields<C>&)` and `Kind::Product build(const Kind::Inputs&)
  /// const`. `doc` is one line. Throws PluginError if the name is taken.
  template <class C>
  void add(const std::string& name, const std::string& doc);

  /// The component called `name`, or nullptr.
  const Entry* find(const std::string& name) const {
    const auto it = entries_->find(name);
    return it == entries_->end() ? nullptr : &it->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : *entries_) names.push_back(name);
    return names;
  }
  const std::map<std::string, Entry>& entries() const { return *entries_; }

  /// Sets the plugin from which later additions come.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  /// What is known about a component's struct without its type, so that the same code serves every component.
  struct Options {
    using Read = std::shared_ptr<const void> (*)(const FieldList&, const Value&, Reader&, const std::string& name,
                                                 const std::vector<std::string>& known_elsewhere);
    std::shared_ptr<const FieldList> fields;
    const std::type_info* type;
    Read read;
    typename Kind::Product (*build)(const void* options, const typename Kind::Inputs&);
    typename FactsOf<Kind>::Type (*facts)(const void* options, const typename Kind::Inputs&);
    typename FormOf<Kind>::Type form;
  };
  void add_options(const std::string& name, const std::string& doc, const Options& options);

  std::shared_ptr<std::map<std::string, Entry>> entries_ = std::make_shared<std::map<std::string, Entry>>();
  std::string origin_;
};

namespace detail {
[[noreturn]] void throw_duplicate(const std::string& kind, const std::string& name, const std::string& first,
                                  const std::string& second);
[[noreturn]] void throw_reserved(const std::string& kind, const std::string& name, const std::string& parameter);
}  // namespace detail

template <class Kind>
template <class C>
void Registry<Kind>::add(const std::string& name, const std::string& doc) {
  add_options(name, doc,
              {std::make_shared<const Fields<C>>(), &typeid(C),
               [](const FieldList& fields, const Value& map, Reader& reader, const std::string& owner,
                  const std::vector<std::string>& known_elsewhere) -> std::shared_ptr<const void> {
                 return std::make_shared<const C>(
                     static_cast<const Fields<C>&>(fields).read(map, reader, owner, known_elsewhere));
               },
               [](const void* options, const typename Kind::Inputs& inputs) ->
               typename Kind::Product { return static_cast<const C*>(options)->build(inputs); },
               [](const void* options, const typename Kind::Inputs& inputs) -> typename FactsOf<Kind>::Type {
                 if constexpr (requires(const C& own) { own.facts(inputs); }) {
                   return static_cast<const C*>(options)->facts(inputs);
                 } else {
                   return {};
                 }
               },
               FormOf<Kind>::template of<C>()});
}

template <class Kind>
void Registry<Kind>::add_options(const std::string& name, const std::string& doc, const Options& options) {
  if (const Entry* other = find(name)) detail::throw_duplicate(Kind::kName, name, other->origin, origin_);
  Entry entry;
  entry.name = name;
  entry.doc = doc;
  entry.origin = origin_;
  entry.parameters = options.fields->parameters();
  entry.relations = options.fields->relations();
  entry.wanted = options.fields->wanted();
  std::vector<std::string> known_elsewhere = {"type"};
  for (const Parameter& common : Codec<typename Kind::Common>::fields().parameters()) {
    known_elsewhere.push_back(common.name);
  }
  for (const Parameter& own : entry.parameters) {
    for (const std::string& reserved : known_elsewhere) {
      if (own.name == reserved) detail::throw_reserved(Kind::kName, name, reserved);
    }
  }
  entry.read = [options, name, known_elsewhere](const Value& map, Reader& reader, Component<Kind>& component) {
    component.read_options = [options, name, known_elsewhere](const Value& written, Reader& errors) {
      return options.read(*options.fields, written, errors, name, known_elsewhere);
    };
    component.options = component.read_options(map, reader);
    component.options_type = options.type;
    component.form = options.form;
    component.attributes = options.fields->write(component.options.get());
    component.build = [own = component.options, build = options.build](const typename Kind::Inputs& inputs) {
      return build(own.get(), inputs);
    };
    component.facts = [own = component.options, facts = options.facts](const typename Kind::Inputs& inputs) {
      return facts(own.get(), inputs);
    };
  };
  if (entries_.use_count() > 1) entries_ = std::make_shared<std::map<std::string, Entry>>(*entries_);
  entries_->emplace(name, std::move(entry));
}

/// A kind whose components read more than their own and the common parameters.
template <class Kind>
concept Finishes =
    requires(Component<Kind>& component, const Value& map, Reader& reader) { Kind::finish(component, map, reader); };

/// `{type: Conv2d, out_channels: 32}` or `ReLU`.
template <class Kind>
struct Codec<Component<Kind>> {
  static std::optional<Component<Kind>> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"$ref", std::string("#/definitions/") + Kind::kName}}; }
  static nlohmann::json write(const Component<Kind>& component) {
    return component.type.empty() ? nlohmann::json() : nlohmann::json(component.type);
  }
  static std::string type_name() { return Kind::kName; }
};

namespace detail {
/// The name under `type`, or of the bare name; nothing if `value` is neither (reported).
std::optional<std::string> component_type(const Value& value, const std::string& kind, Reader& reader);
/// `value` as a mapping, also where it is a bare name.
Value component_map(const Value& value);
/// Reports a type that is not registered, as `unknown_component`.
void report_unknown(const Value& value, const std::string& kind, const std::string& type,
                    const std::vector<std::string>& names, Reader& reader);
}  // namespace detail

template <class Kind>
std::optional<Component<Kind>> Codec<Component<Kind>>::read(const Value& value, Reader& reader) {
  const auto type = detail::component_type(value, Kind::kName, reader);
  if (!type) return std::nullopt;
  const Registry<Kind>& registry = registry_of(reader.catalog(), Kind());  // declared beside each kind
  const auto* entry = registry.find(*type);
  if (!entry) {
    detail::report_unknown(value, Kind::kName, *type, registry.names(), reader);
    return std::nullopt;
  }
  const size_t before = reader.problems().size();
  const Value map = detail::component_map(value);
  Component<Kind> component;
  component.type = *type;
  component.place = value.place();
  component.path = reader.path();
  component.written = value;
  Value common = map;  // what is no common parameter is the component's own to judge
  std::erase_if(common.entries(), [](const Value::Entry& item) {
    const auto parameters = Codec<typename Kind::Common>::fields().parameters();
    return std::none_of(parameters.begin(), parameters.end(),
                        [&](const Parameter& parameter) { return parameter.name == item.key; });
  });
  component.common = Codec<typename Kind::Common>::fields().read(common, reader, *type);
  entry->read(map, reader, component);
  if constexpr (Finishes<Kind>) {
    if (reader.problems().size() == before) Kind::finish(component, map, reader);
  }
  if (reader.problems().size() != before) return std::nullopt;
  return component;
}

/// For kinds whose components have no parameters in common.
struct NoCommon {
  static void describe(Fields<NoCommon>&) {}
};

}  // namespace trainrun
