// Admits objects with the API server's own plugin for MutatingAdmissionPolicy.
//
// Owns: the plugin of k8s.io/apiserver, and a store in memory instead of etcd. It must not know what
// the policies say. A document on stdin lists policies, bindings, parameters and namespaces, and
// what is sent (pods, claims); stdout gets each as admitted, or the refusal. Built and run by
// ci/policies.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	registered "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
)

// mapper knows the resource of a kind.
var mapper = testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme)

type question struct {
	Objects []json.RawMessage `json:"objects"`
	Sent    []json.RawMessage `json:"sent"`
}

type answer struct {
	Object  runtime.Object `json:"object,omitempty"`
	Refused string         `json:"refused,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func run() error {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	objects, err := decodeAll(asked.Objects)
	if err != nil {
		return err
	}
	sent, err := decodeAll(asked.Sent)
	if err != nil {
		return err
	}
	defaulted(objects)
	stop := make(chan struct{})
	defer close(stop)
	plugin, err := plugged(objects, stop)
	if err != nil {
		return err
	}
	answers := struct {
		Version string           `json:"version"`
		Objects []runtime.Object `json:"objects"`
		Answers []answer         `json:"answers"`
	}{Version: compatibility.DefaultBuildEffectiveVersion().String(), Objects: objects}
	for _, each := range sent {
		attributes, err := creation(each)
		if err != nil {
			return err
		}
		if err := admitted(plugin, attributes); err != nil {
			answers.Answers = append(answers.Answers, answer{Refused: err.Error()})
		} else {
			answers.Answers = append(answers.Answers, answer{Object: each})
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

// decodeAll refuses fields that a kind does not have, as the API server does when asked to be strict.
func decodeAll(texts []json.RawMessage) ([]runtime.Object, error) {
	strict := kjson.NewSerializerWithOptions(
		kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, kjson.SerializerOptions{Strict: true})
	var objects []runtime.Object
	for _, text := range texts {
		object, _, err := strict.Decode(text, nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// defaulted fills in what policies and bindings leave out; the server's own code for this is not in
// k8s.io/apiserver.
func defaulted(objects []runtime.Object) {
	for _, object := range objects {
		switch each := object.(type) {
		case *registered.MutatingAdmissionPolicy:
			all(each.Spec.MatchConstraints)
		case *registered.MutatingAdmissionPolicyBinding:
			all(each.Spec.MatchResources)
		}
	}
}

func all(matched *registered.MatchResources) {
	if matched == nil {
		return
	}
	equivalent, every := registered.Equivalent, registered.AllScopes
	if matched.MatchPolicy == nil {
		matched.MatchPolicy = &equivalent
	}
	if matched.NamespaceSelector == nil {
		matched.NamespaceSelector = &metav1.LabelSelector{}
	}
	if matched.ObjectSelector == nil {
		matched.ObjectSelector = &metav1.LabelSelector{}
	}
	for number := range matched.ResourceRules {
		if rule := &matched.ResourceRules[number].Rule; rule.Scope == nil {
			rule.Scope = &every
		}
	}
}

// plugged returns the admission chain of a server that stores these objects.
func plugged(objects []runtime.Object, stop chan struct{}) (admission.MutationInterface, error) {
	if !utilfeature.DefaultFeatureGate.Enabled(features.MutatingAdmissionPolicy) {
		return nil, errors.New("this API server has no MutatingAdmissionPolicy by default")
	}
	client := described{fake.NewClientset(objects...)}
	known := informers.NewSharedInformerFactory(client, 0)
	server := initializer.New(
		client, dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...), known,
		authorizerfactory.NewAlwaysAllowAuthorizer(), utilfeature.DefaultFeatureGate,
		compatibility.DefaultBuildEffectiveVersion(), stop, mapper)
	plugins := admission.NewPlugins()
	mutating.Register(plugins)
	made, err := plugins.NewFromPlugins([]string{mutating.PluginName}, unconfigured{}, server, nil)
	if err != nil {
		return nil, err
	}
	known.Start(stop)
	known.WaitForCacheSync(stop)
	return made.(admission.MutationInterface), nil
}

// described is a client whose server publishes schemas, which the fake one does not.
type described struct{ *fake.Clientset }

type descriptions struct{ discovery.DiscoveryInterface }

func (client described) Discovery() discovery.DiscoveryInterface {
	return descriptions{client.Clientset.Discovery()}
}

func (descriptions) OpenAPIV3() openapi.Client {
	return schemas{openapitest.NewEmbeddedFileClient()}
}

// schemas are those of Debian's package, which has none of claims, and an empty one for these. The
// plugin demands that there is one, and reads it only for patches of the kind ApplyConfiguration.
type schemas struct{ openapi.Client }

func (known schemas) Paths() (map[string]openapi.GroupVersion, error) {
	paths, err := known.Client.Paths()
	if err == nil {
		paths["apis/resource.k8s.io/v1"] = empty{}
	}
	return paths, err
}

type empty struct{}

func (empty) Schema(string) ([]byte, error) {
	return []byte(`{"openapi": "3.0.0", "components": {"schemas": {}}}`), nil
}

func (empty) ServerRelativeURL() string { return "empty" }

// unconfigured stands for an absent configuration file.
type unconfigured struct{}

func (unconfigured) ConfigFor(string) (io.Reader, error) { return nil, nil }

// creation is the request of somebody who creates the object.
func creation(object runtime.Object) (admission.Attributes, error) {
	kind := object.GetObjectKind().GroupVersionKind()
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	named, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	return admission.NewAttributesRecord(
		object, nil, kind, named.GetNamespace(), named.GetName(), mapping.Resource, "",
		admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"}), nil
}

// admitted changes the object; the chain calls the plugin again where a server would.
func admitted(plugin admission.MutationInterface, attributes admission.Attributes) error {
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	return plugin.Admit(context.Background(), attributes, interfaces)
}
