// tbb::concurrent_unordered_map behind a C interface that works on whole batches of keys, so that
// the call across the language border costs nothing per operation.
//
// Hashes: the finaliser of MurmurHash3 for words, libstdc++'s hash of a byte string (Murmur) for
// 40-byte keys. Values are the first word of the key, and its complement after an update.

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tbb/concurrent_unordered_map.h>

namespace {

using Word = std::uint64_t;
using Bytes = std::array<char, 40>;

struct WordHash {
    std::size_t operator()(Word key) const {
        key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
        key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
        return key ^ (key >> 33);
    }
};

struct BytesHash {
    std::size_t operator()(const Bytes& key) const {
        return std::hash<std::string_view>()(std::string_view(key.data(), key.size()));
    }
};

using WordMap = tbb::concurrent_unordered_map<Word, Word, WordHash>;
using BytesMap = tbb::concurrent_unordered_map<Bytes, Word, BytesHash>;

Word value_of(Word key) { return key; }

Word value_of(const Bytes& key) {
    Word word;
    std::memcpy(&word, key.data(), sizeof word);
    return word;
}

template <class Map>
Word insert_many(Map& map, const typename Map::key_type* keys, std::size_t n) {
    Word done = 0;
    for (std::size_t i = 0; i < n; i++) done += map.emplace(keys[i], value_of(keys[i])).second;
    return done;
}

template <class Map>
Word lookup_many(const Map& map, const typename Map::key_type* keys, std::size_t n, Word* sum) {
    Word done = 0;
    for (std::size_t i = 0; i < n; i++) {
        auto found = map.find(keys[i]);
        if (found == map.end()) continue;
        *sum += found->second;
        done++;
    }
    return done;
}

template <class Map>
Word update_many(Map& map, const typename Map::key_type* keys, std::size_t n) {
    Word done = 0;
    for (std::size_t i = 0; i < n; i++) {
        auto found = map.find(keys[i]);
        if (found == map.end()) continue;
        __atomic_store_n(&found->second, ~value_of(keys[i]), __ATOMIC_RELEASE);
        done++;
    }
    return done;
}

template <class Map>
Word mixed_many(Map& map, const typename Map::key_type* keys, std::size_t n, Word* sum) {
    Word done = 0;
    for (std::size_t i = 0; i + 1 < n; i += 2) {
        done += lookup_many(map, keys + i, 1, sum);
        done += insert_many(map, keys + i + 1, 1);
    }
    return done;
}

// Not safe beside other threads: the library has no concurrent erase.
template <class Map>
Word remove_many(Map& map, const typename Map::key_type* keys, std::size_t n) {
    Word done = 0;
    for (std::size_t i = 0; i < n; i++) done += map.unsafe_erase(keys[i]);
    return done;
}

template <class Map>
Word run(Map& map, int operation, const typename Map::key_type* keys, std::size_t n, Word* sum) {
    switch (operation) {
        case 0: return insert_many(map, keys, n);
        case 1: return lookup_many(map, keys, n, sum);
        case 2: return update_many(map, keys, n);
        case 3: return mixed_many(map, keys, n, sum);
        case 4: return remove_many(map, keys, n);
        default: return 0;
    }
}

}  // namespace

extern "C" {

void* tbb_word_map_new() { return new WordMap(); }
void tbb_word_map_free(void* map) { delete static_cast<WordMap*>(map); }
Word tbb_word_map_run(void* map, int operation, const Word* keys, std::size_t n, Word* sum) {
    return run(*static_cast<WordMap*>(map), operation, keys, n, sum);
}

void* tbb_bytes_map_new() { return new BytesMap(); }
void tbb_bytes_map_free(void* map) { delete static_cast<BytesMap*>(map); }
Word tbb_bytes_map_run(void* map, int operation, const Bytes* keys, std::size_t n, Word* sum) {
    return run(*static_cast<BytesMap*>(map), operation, keys, n, sum);
}
}
