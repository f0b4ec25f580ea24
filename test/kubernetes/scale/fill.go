package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
)

// stored is an object in the API server's storage.
type stored struct {
	key    string
	object object
}

// each yields all initial objects.
func (o *options) each(give func(stored)) {
	for i := range o.namespaces {
		give(stored{"namespaces/" + namespaceName(i), namespace(i)})
	}
	for i := range o.nodes {
		give(stored{"minions/" + nodeName(i), node(i, nodeAddress(i))})
	}
	for i := range o.services {
		in := i % o.namespaces
		give(stored{"services/specs/" + namespaceName(in) + "/" + serviceName(i), service(i, in, i/o.namespaces%appsEach)})
		give(stored{"ipaddresses/" + serviceAddress(i), address(i, in)})
		give(stored{"endpointslices/" + namespaceName(in) + "/" + sliceName(i), slice(i, in, o.endpoints(i))})
	}
	for i := range o.policies {
		in := i % o.namespaces
		p := policy(i/o.namespaces, in)
		give(stored{"networkpolicies/" + namespaceName(in) + "/" + p["metadata"].(object)["name"].(string), p})
	}
	for i := range o.pods {
		node, nth, in, app := o.place(i)
		p := pod(i, podName(app, i), in, app, node)
		maps.Copy(p, podStatus(podAddress(node, firstAddress+nth), nodeAddress(node).String(), true))
		give(stored{"pods/" + namespaceName(in) + "/" + podName(app, i), p})
	}
}

// batch is the number of objects per etcd transaction, writers the number of concurrent transactions.
const (
	batch   = 200
	writers = 3
)

// fill writes all objects into etcd before the API server starts: creating 170,000 objects through it takes a quarter
// of an hour.
func fill(ctx context.Context, o *options) (count int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches := make(chan []stored, writers)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for b := range batches {
				if ctx.Err() == nil {
					if err := o.put(ctx, b); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	var next []stored
	o.each(func(s stored) {
		count++
		if next = append(next, s); len(next) == batch {
			batches <- next
			next = nil
		}
	})
	batches <- next
	close(batches)
	all.Wait()
	return count, context.Cause(ctx)
}

// put writes objects in one transaction, by etcd's JSON gateway.
func (o *options) put(ctx context.Context, all []stored) error {
	var operations []object
	for _, s := range all {
		value, err := json.Marshal(s.object)
		if err != nil {
			return err
		}
		operations = append(operations, object{"requestPut": object{"key": []byte("/registry/" + s.key), "value": value}})
	}
	body, err := json.Marshal(object{"success": operations})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := o.client.Do(r)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("write to etcd: %s: %.300s", response.Status, answer)
	}
	return err
}
