// Runs whole batches of keys on a C++ map, so that the call across the language border costs nothing per operation.
//
// Hashes: the finaliser of MurmurHash3 for words, libstdc++'s hash of a byte string (Murmur) for 40-byte keys.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "entry.h"

namespace {

using Word = std::uint64_t;
using Key40 = std::array<char, 40>;
using Value100 = std::array<char, 100>;

struct Hash {
    std::size_t operator()(Word key) const {
        key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
        key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
        return key ^ (key >> 33);
    }

    std::size_t operator()(const Key40& key) const {
        return std::hash<std::string_view>()(std::string_view(key.data(), key.size()));
    }
};

template <class Value>
Value make_value(Word word) {
    Value value;
    write_value(&value, sizeof value, word);
    return value;
}

template <class Value>
Word word_of(const Value& value) {
    return read_value(&value, sizeof value);
}

struct Batches {
    virtual ~Batches() = default;
    // Returns how many operations succeeded, and adds up the values found.
    virtual Word run(int operation, const void* keys, std::size_t n, Word* sum) = 0;
};

// `Map` has the types Key and Value and the methods insert, lookup, update and remove, each for one key.
template <class Map>
class BatchesOn final : public Batches {
    using Key = typename Map::Key;
    using Value = typename Map::Value;

    Map map;

    bool insert(const Key& key) { return map.insert(key, make_value<Value>(word_at(&key))); }

    Word run_mixed(const Key* keys, std::size_t n, Word* sum) {
        Word done = 0;
        for (std::size_t i = 0; i + 1 < n; i += 2) done += map.lookup(keys[i], sum) + insert(keys[i + 1]);
        return done;
    }

public:
    Word run(int operation, const void* batch, std::size_t n, Word* sum) override {
        const Key* keys = static_cast<const Key*>(batch);
        Word done = 0;
        switch (operation) {
            case 0:
                for (std::size_t i = 0; i < n; i++) done += insert(keys[i]);
                return done;
            case 1:
                for (std::size_t i = 0; i < n; i++) done += map.lookup(keys[i], sum);
                return done;
            case 2:
                for (std::size_t i = 0; i < n; i++) done += map.update(keys[i], make_value<Value>(~word_at(&keys[i])));
                return done;
            case 3:
                return run_mixed(keys, n, sum);
            case 4:
                for (std::size_t i = 0; i < n; i++) done += map.remove(keys[i]);
                return done;
            default:
                return 0;
        }
    }
};

// An empty map for keys and values of these lengths; null if there is none for them.
template <template <class, class> class Map>
Batches* make_batches(std::size_t key_len, std::size_t value_len) {
    if (key_len == sizeof(Word) && value_len == sizeof(Word)) return new BatchesOn<Map<Word, Word>>();
    if (key_len == sizeof(Key40) && value_len == sizeof(Word)) return new BatchesOn<Map<Key40, Word>>();
    if (key_len == sizeof(Key40) && value_len == sizeof(Value100)) return new BatchesOn<Map<Key40, Value100>>();
    return nullptr;
}

}  // namespace
